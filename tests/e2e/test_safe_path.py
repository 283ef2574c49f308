"""A folder that somebody sent holds a module of every name that Python knows: no command imports one of them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import commands
from tests.e2e.servers import Server, ended
from tests.waiting import until

from neurotest.cli.app import COMMANDS

pytestmark = pytest.mark.plain
SOURCE = Path(__file__).parents[2] / "src"
LIBRARIES = {
    "PIL", "fastapi", "jinja2", "kornia", "numpy", "pyarrow", "pydantic", "ray", "rich", "safetensors", "scipy", "sitecustomize",
    "sklearn", "starlette", "threadpoolctl", "torch", "typer", "typing_extensions", "usercustomize", "uvicorn", "vl_convert",
}  # fmt: skip
NETWORK, DATA = "zoo:mnist-lenet1", "zoo:mnist/test[:40]"
WORKERS = ("--workers", "2", "-q")
WALKS = {
    "cover": ("cover", NETWORK, DATA, "--train", DATA, "--criteria", "kmnc:10"),
    "score": ("score", NETWORK, DATA, "--method", "margin", "--out", "../scored"),
}
SLOW_WALKS = {
    "select": ("select", NETWORK, DATA, "--method", "deepgini", "--budget", "5", "--out", "../selected"),
    "fuzz": ("fuzz", NETWORK, DATA, "--forwards", "200", "--islands", "2", "--out", "../fuzzed"),
    "describe": ("describe", NETWORK, DATA, "--out", "../described"),
    "evaluate": ("evaluate", "."),
    "swarm": ("swarm", NETWORK, "zoo:mnist/test[:4]", "--out", "../swarmed"),
    "check": ("check", NETWORK, DATA, "--time", "30s", "--out", "../checked"),
}


COMMAND = """
import sys
from neurotest.cli.app import main
if __name__ == "__main__":
    sys.exit(main())
"""


def run(program: Path | str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *(["-m", program] if isinstance(program, str) else [program]), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def neurotest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `neurotest`, as pip installs it: a file in a folder of programs."""
    file = tmp_path_factory.mktemp("bin") / "neurotest"
    file.write_text(COMMAND)
    return file


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign and a selection, made where nothing is planted."""
    folder = tmp_path_factory.mktemp("made")
    np.savez(folder / "pool.npz", x=np.random.default_rng(0).integers(0, 256, (60, 1, 28, 28), dtype=np.uint8))
    for words in (
        ("fuzz", NETWORK, "zoo:mnist/test[:40]", "--forwards", "600", "--out", "fuzzed"),
        ("select", NETWORK, "npz:pool.npz#x", "--method", "adaptive", "--budget", "20", "--out", "selected"),
    ):
        done = commands.run(*words, "-q", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def plant(folder: Path) -> Path:
    """Modules that write down their name when they are imported; returns where."""
    witness = folder.parent / "imported.txt"
    for name in sorted((sys.stdlib_module_names | LIBRARIES) - {"neurotest"}):
        (folder / f"{name}.py").write_text(f"open({str(witness)!r}, 'a').write(__name__ + '\\n')\n")
    return witness


def imported(witness: Path) -> list[str]:
    return witness.read_text().split() if witness.exists() else []


@pytest.fixture
def sent(runs: Path, tmp_path: Path) -> Path:
    """A folder with a run and with planted modules; `imported.txt` beside it names those that were imported."""
    shutil.copytree(runs / "fuzzed", tmp_path / "sent")
    plant(tmp_path / "sent")
    return tmp_path / "sent"


def test_what_is_planted_betrays_itself(sent: Path) -> None:
    subprocess.run([sys.executable, "-c", "import colorsys"], cwd=sent, check=True, env={**os.environ, "PYTHONSAFEPATH": ""})
    assert imported(sent.parent / "imported.txt") == ["colorsys"]


def walk(program: Path | str, sent: Path, *words: str) -> None:
    done = run(program, *words, cwd=sent)
    assert imported(sent.parent / "imported.txt") == []
    assert done.returncode == 0, done.stderr


def test_the_first_process_imports_none(neurotest: Path, sent: Path) -> None:
    walk(neurotest, sent, "status", ".")


def test_python_m_imports_none_but_what_python_needs_to_find_us(sent: Path) -> None:
    """Python imports `runpy` and what that needs, then neurotest; from there on the current folder is off the path."""
    before = subprocess.run([sys.executable, "-c", "import runpy, sys; print(*sys.modules)"], capture_output=True, text=True)
    for name in before.stdout.split():
        (sent / f"{name}.py").unlink(missing_ok=True)
    walk("neurotest", sent, *WALKS["score"], *WORKERS)


@pytest.mark.parametrize("command", WALKS)
def test_workers_import_none(command: str, neurotest: Path, sent: Path) -> None:
    walk(neurotest, sent, *WALKS[command], *WORKERS)


@pytest.mark.slow
@pytest.mark.parametrize("command", SLOW_WALKS)
def test_workers_of_long_commands_import_none(command: str, neurotest: Path, sent: Path) -> None:
    walk(neurotest, sent, *SLOW_WALKS[command], *WORKERS)


@pytest.mark.ray
def test_workers_of_a_ray_import_none(neurotest: Path, sent: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` brings it.")
    walk(neurotest, sent, *WALKS["score"], *WORKERS, "--ray", "local")


def test_every_command_that_takes_workers_is_walked() -> None:
    parallel = {command.__name__ for command in COMMANDS if "workers" in inspect.signature(command).parameters}
    assert parallel == {*WALKS, *SLOW_WALKS}


def test_the_selector_behind_the_label_page_imports_none(neurotest: Path, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "selected", tmp_path / "sent")
    witness = plant(tmp_path / "sent")
    with Server("label", ".", cwd=tmp_path / "sent", program=neurotest) as server:
        holder = {"holder": "0123456789abcdef"}

        def said() -> Any:
            answer = server.ask("/api/next", holder).json
            return (answer["state"] != "choosing" or imported(witness)) and answer

        answer = until(said, "an input to label")
    assert imported(witness) == []
    assert answer["state"] == "show", answer


def test_explaining_behind_the_live_page_imports_none(neurotest: Path, sent: Path) -> None:
    witness = sent.parent / "imported.txt"
    with Server("serve", ".", cwd=sent, program=neurotest) as server:
        family = server.ask("/api/families?limit=1").json["families"][0]
        job = server.ask("/api/jobs", {"kind": "shrink", "fault": family["fault"]}).json
        job = ended(server, job)
    assert imported(witness) == []
    assert job["state"] == "done", job


STARTERS = re.compile(r"subprocess|get_context|ProcessPoolExecutor|os\.(fork|system|popen|posix_spawn|spawn[lv]|exec[lv])")


def test_processes_are_started_in_one_place() -> None:
    """Whoever starts one elsewhere has the current folder on its path again."""
    places = [file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if STARTERS.search(file.read_text())]
    assert places == ["neurotest/scale/start.py"]
