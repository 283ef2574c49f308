# Everything below needs Python 3.11 or later and make; the rest is installed into $(VENV) on first use.
#   make demo    the whole job on the embedded subject        make test    the test suite
VENV ?= .venv
PYTHON ?=
ARGS ?=
# Processes for the tests; one torch thread each. A file stays in one process; files with few tests that take long come first,
# because pytest keeps the order of folders (e2e, fuzz, ..., unit).
JOBS ?= auto
SPREAD = -n $(JOBS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# SAMPLE=1: the first case of every test of peers, models and Ray, instead of all.
SAMPLE ?=
ONE_CASE = $(if $(SAMPLE),--one-case)
# Where numbers of torch are computed and compared (tests/unit/stats is numpy alone, which the variables below do not reach).
NUMERIC := tests/peers $(addprefix tests/unit/,attribute coverage evaluate generate mutate select semantics target zoo)

BIN := $(VENV)/bin
# Other people's packages that the tests compare with stay out of the environment of the work, and so do model libraries: they bring
# torchvision, whose presence breaks other packages. Both see what is installed in $(VENV), so that torch is there once.
PEERS := $(VENV)-peers
MODELS := $(VENV)-models
RAY := $(VENV)-ray
# Errors are shown; for everything pip says: make QUIET= ...
QUIET ?= -qq
# In a rule: the pip of the environment whose stamp is being made.
PIP = $(@D)/bin/python -m pip --disable-pip-version-check --no-input $(QUIET)
# What was installed is written beside the stamp: `scripts/lock.py check` compares it with constraints.lock.
WITH = --constraint constraints.txt --report "$@.json"

# Waiting threads that spin make torch several times slower as soon as a second process is busy.
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT := 0
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo test fuzz fuzz-operators test-all test-lab test-peers test-models test-models-all test-ray test-kernels lint types contracts docs bench setup setup-all check clean
.DEFAULT_GOAL := help
# Two pips in one environment would trip over each other.
.NOTPARALLEL:

help:
	@echo 'make demo       what neurotest does, on the embedded subject (under two minutes after installation)'
	@echo 'make test       the test suite without the slow tests      make test-all   every test there is, in all environments'
	@echo 'make fuzz       generated inputs through every reader (N=100000 READERS=npz,idx)'
	@echo 'make fuzz-operators  generated arguments for every operator that a .pt2 may use (N=1000000)'
	@echo 'make test-lab   the laboratory, with its slow tests'
	@echo 'make test-peers against captum, cleanlab, foolbox, torchmetrics, dnn-tip, ART, onnxruntime, MLflow and W&B, in $(PEERS)'
	@echo 'make test-models networks of timm, torchvision and transformers, in $(MODELS)'
	@echo 'make test-models-all  the slow ones of these, too: exported architectures, every command on every kind of target'
	@echo 'make test-ray   workers of a local Ray, in $(RAY)'
	@echo 'make test-kernels  the tests by hand and with golden values with the instructions of an older processor'
	@echo 'make check      lint, types, contracts, docs               make bench      costs as ratios (ARGS="probe --json")'
	@echo 'make setup      only the environment, in $(VENV)            make clean      remove it and everything built'

demo: $(VENV)/.runtime
	$(BIN)/neurotest demo $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/neurotest bench $(ARGS)

test test-all test-lab test-peers test-models test-models-all test-ray test-kernels: export OMP_NUM_THREADS := 1
test: $(VENV)/.dev
	$(BIN)/python -m pytest -q $(SPREAD) -m "not slow" $(ARGS)

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -q $(SPREAD) $(ARGS)
	$(if $(ARGS),,$(MAKE) test-kernels KERNELS="not slow and not plain")
	$(if $(ARGS),,$(MAKE) test-peers)
	$(if $(ARGS),,$(MAKE) test-models-all)
	$(if $(ARGS),,$(MAKE) test-ray)

# The laboratory, with its slow tests.
test-lab: $(VENV)/.dev
	$(BIN)/python -m pytest -q $(SPREAD) lab/tests lab/src $(ARGS)

# Generated inputs through every reader: make fuzz N=100000 READERS=npz,idx
N ?= 1000
READERS ?=
fuzz: $(VENV)/.dev
	PYTHONPATH=src:. $(BIN)/python -m tests.fuzz --inputs $(N) --readers "$(READERS)" $(ARGS)

# Every operator that a .pt2 may use, with generated arguments: make fuzz-operators N=1000000
fuzz-operators: export OMP_NUM_THREADS := 1
fuzz-operators: $(VENV)/.dev
	PYTHONPATH=src:. $(BIN)/python -m tests.fuzz.operators --calls $(N) $(ARGS)

# A skipped comparison fails, and so does a run in which one of the packages was compared with by no test.
test-peers: export NEUROTEST_PEERS := required
test-peers: $(PEERS)/.peers
	$(PEERS)/bin/python -m pytest -q -m "peer$(if $(SAMPLE), and not slow)" $(ONE_CASE) tests lab/tests $(ARGS)

# A skip fails here, too, and so does a library from which no network was tested.
test-models test-models-all: export NEUROTEST_MODELS := required
test-models: $(MODELS)/.models
	$(MODELS)/bin/python -m pytest -q -m "models and not slow" $(ONE_CASE) tests lab/tests $(ARGS)

test-models-all: $(MODELS)/.models
	$(MODELS)/bin/python -m pytest -q -n $(JOBS) --maxprocesses 8 -m models tests lab/tests $(ARGS)

# Skips fail here, too. All of them, or some: make test-ray RAY_TESTS=tests/unit/scale/test_same_answer.py
RAY_TESTS ?= tests lab/tests
test-ray: export NEUROTEST_RAY := required
test-ray: $(RAY)/.ray
	PATH="$(abspath $(RAY))/bin:$$PATH" $(RAY)/bin/python -m pytest -q -m ray $(ONE_CASE) $(RAY_TESTS) $(ARGS)

# What holds for the kernels of one processor only fails here on most others. Every number: make test-kernels KERNELS="not slow and not plain"
KERNELS ?= by_hand and not slow
test-kernels: export ATEN_CPU_CAPABILITY := default
test-kernels: export ONEDNN_MAX_CPU_ISA := SSE41
test-kernels: export MKL_CBWR := COMPATIBLE
test-kernels: $(VENV)/.dev
	$(BIN)/python -m pytest -q $(SPREAD) -m "$(KERNELS)" $(NUMERIC) $(ARGS)

check: lint types contracts docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	PYTHONPATH=src:lab/src $(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict --quiet --site-dir site

setup: $(VENV)/.dev

setup-all: $(VENV)/.dev $(PEERS)/.peers $(MODELS)/.models $(RAY)/.ray

# --- the environment: each stamp is written last, so that an interrupted installation starts again ---

$(VENV)/.made $(PEERS)/.made $(MODELS)/.made $(RAY)/.made:
	@set -e; chosen=; for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then chosen="$$python"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo 'neurotest needs Python 3.11 or later with its venv module (Debian, Ubuntu: apt install python3.11-venv).' >&2; \
	  echo 'None was found among: $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python). Name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)' >&2; \
	  exit 2; \
	fi; \
	echo "Making $(@D) with $$("$$chosen" -V)"; "$$chosen" -m venv "$(@D)"; touch "$@"

# torch alone and first: once the pinned one is there, nothing that follows can pull in another.
$(VENV)/.torch: $(VENV)/.made constraints.txt
	@echo 'Installing torch (a few minutes the first time)'
	$(PIP) install $(WITH) torch hatchling editables
	@touch "$@"

$(VENV)/.runtime: $(VENV)/.torch pyproject.toml
	@echo 'Installing neurotest'
	$(PIP) install $(WITH) --no-build-isolation --editable .
	@touch "$@"

$(VENV)/.dev: $(VENV)/.torch pyproject.toml lab/pyproject.toml
	@echo 'Installing neurotest and the tools to test it'
	$(PIP) install $(WITH) --no-build-isolation --editable '.[dev]' --editable ./lab
	@touch "$(VENV)/.runtime" "$@"

# In a rule: let the environment see the packages of $(VENV), after its own.
SITE := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
BORROW = @$(BIN)/python $(SITE) > "$$($(@D)/bin/python $(SITE))/borrowed.pth"

$(PEERS)/.peers: $(PEERS)/.made $(VENV)/.dev
	@echo 'Installing the packages to compare neurotest with'
	$(BORROW)
	$(PIP) install $(WITH) --no-build-isolation --editable '.[peers]' --editable ./lab
	@touch "$@"

$(MODELS)/.models: $(MODELS)/.made $(VENV)/.dev
	@echo 'Installing the model libraries'
	$(BORROW)
	$(PIP) install $(WITH) --no-build-isolation --editable '.[networks]' --editable ./lab
	@touch "$@"

$(RAY)/.ray: $(RAY)/.made $(VENV)/.dev
	@echo 'Installing Ray'
	$(BORROW)
	$(PIP) install $(WITH) --no-build-isolation --editable '.[ray,test]' --editable ./lab
	@touch "$@"

clean:
	rm -rf .venv .venv-peers .venv-models .venv-ray build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src lab tests docs scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
