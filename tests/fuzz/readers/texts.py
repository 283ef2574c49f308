"""What is typed, and small text files: specs of targets, data and methods, neurotest.toml, class names."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.harness import Read
from tests.fuzz.mutators import FLOATS, NUMBERS, WORDS, Rng, dump, encode, mutate_text, nasty, pick

from neurotest import registry

VALUES = (
    *WORDS,
    *map(str, NUMBERS),
    *map(str, FLOATS),
    "b'x'",
    "{1}",
    "{}",
    "{1: 2}",
    "[1, 'a']",
    "(1, 2)",
    "...",
    "1j",
    "'a'",
    "f'{1}'",
    "True",
    "8/255",
    "1/0",
    "1/3/5",
    "0.5",
    "3",
    "criterion/kmnc(sections=10)",
    "criterion/kmnc(sections=[])",
    "selector/x()",
    "lambda: 1",
)


class TargetSpec:
    name, outside = "target-spec", True

    def prepare(self, folder: Path) -> None:
        (folder / "model.py").write_text(
            "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()\n"
        )
        self.seeds = (
            "zoo:mnist-lenet1",
            "zoo:mnist-lenet1+polluted10",
            "pt2:net.pt2",
            "onnx:net.onnx",
            "timm:resnet18",
            "resnet18",
            "",
            "py:model.py:build",
            "py:no_such_module:build",
            f"py:{folder}/none.py:build",
        )

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.load import load

        spec = mutate_text(rng, pick(rng, self.seeds))
        if spec.startswith("py:") and _runs(spec[3:].rpartition(":")[0]):
            spec = "py:model.py"  # naming a module that exists runs it: that is the user's own act
        options = {}
        if rng.random() < 0.5:
            key = pick(rng, ("bounds", "mean", "std", "size", "classes", "outputs", "device", "weights"))
            options[key] = pick(rng, (pick(rng, WORDS), [pick(rng, NUMBERS)], "1x28x28", [0, 1]))
            spec = "zoo:mnist-lenet1"
        self.last = (spec, options)
        return lambda: load(spec, **options)  # type: ignore[arg-type]


def _runs(place: str) -> bool:
    if "/" in place or place.endswith(".py"):
        return False
    with suppress(Exception):
        return importlib.util.find_spec(place.partition(".")[0]) is not None
    return False


class DataSpec:
    name, outside = "data-spec", True

    def prepare(self, folder: Path) -> None:
        np.savez(folder / "a.npz", x=np.zeros((4, 1, 6, 6), np.uint8), y=np.zeros(4, np.int64))
        self.seeds = (
            f"npz:{folder}/a.npz#x,y",
            f"npz:{folder}/a.npz",
            "zoo:mnist/test[:3]",
            "zoo:mnist/test@0:3",
            "idx:/",
            "idx:a/t",
            "dir:.",
            "npz:~nobody/x",
            "mnist/test",
            "",
            "npz:",
            "parquet:a#b",
            "wav:x",
            "a.npz",
            f"npz:{folder}/a.npz[::2]",
        )

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.data.spec import data

        spec = mutate_text(rng, pick(rng, self.seeds))
        self.last = spec
        return lambda: data(spec, limit=4)


class MethodSpec:
    """Every registered method with settings, in all spellings."""

    name, outside = "method-spec", False

    def prepare(self, folder: Path) -> None:
        kinds = [kind for kind in registry.kinds() if kind not in ("target source", "data source", "suite", "split", "study")]
        self.entries = [entry for kind in kinds for entry in registry.entries(kind).values()]

    def case(self, rng: Rng, folder: Path) -> Read:
        entry = pick(rng, self.entries)
        chosen = [pick(rng, list(entry.options)) for _ in range(int(rng.integers(0, 4)))] if entry.options else []
        options = [f"{name}={pick(rng, VALUES)}" for name in chosen]
        if rng.random() < 0.2:
            options.append(f"{pick(rng, WORDS)}={pick(rng, VALUES)}")
        if rng.random() < 0.3:
            options.append(pick(rng, (*VALUES, "preset=default")))
        inner = ",".join(options)
        text = pick(rng, (f"{entry.name}:{inner}", f"{entry.name}({inner})", entry.name))
        text = mutate_text(rng, text) if rng.random() < 0.3 else text
        self.last = (entry.kind, text)

        def read() -> Any:
            method = registry.build(entry.kind, text)
            with suppress_unwritable():
                return registry.build(entry.kind, registry.text(method))

        return read


def suppress_unwritable() -> Any:
    from neurotest.errors import BadInput

    return suppress(BadInput)


class StoredMethod:
    """Methods as runs hold them: text, or a name with options."""

    name, outside = "stored-method", False

    def prepare(self, folder: Path) -> None:
        self.kinds = ["attack", "selector", "criterion", "differential", "guide", "fitness", "oracle", "generator"]

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.jobs.methods import read_method

        kind = pick(rng, self.kinds)
        entry = pick(rng, list(registry.entries(kind).values()))
        options = {name: nasty(rng) for name in entry.options if rng.random() < 0.3}
        stored = pick(
            rng,
            ({"name": entry.name, "options": options}, {"name": nasty(rng), "options": nasty(rng)}, nasty(rng), dump(options)),
        )
        self.last = stored
        return lambda: read_method(kind, stored)


TOML = """[target]
bounds = [0, 1]
mean = [0.5]
std = 0.5
size = "1x28x28"
classes = ["a", "b"]
outputs = "logits"
weights = "w.pt"
"""
TOML_VALUES = (
    '"x"',
    "1",
    "-1",
    "[]",
    "[1]",
    "[1, 2]",
    '["a", 1]',
    "{}",
    "{a = 1}",
    "true",
    "1979-05-27",
    "nan",
    "inf",
    "[[1]]",
    "1e999",
    "0x" + "f" * 40,
    '""',
    '"\\u0000"',
    "'''\n'''",
    "9" * 5000,
    "[" * 500,
    '"~nobody/x"',
)


class Toml:
    name, outside = "toml", False

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read:
        import contextlib
        import io

        from neurotest.cli.settings_file import read_description
        from neurotest.settings.target import in_toml
        from neurotest.target.load import load

        lines = TOML.splitlines()
        for _ in range(int(rng.integers(1, 3))):
            lines[int(rng.integers(1, len(lines)))] = (
                f"{pick(rng, (*in_toml(), 'spec', 'trust_pickle'))} = {pick(rng, TOML_VALUES)}"
            )
        text = "\n".join(line for line in lines if rng.random() < 0.9)
        text = mutate_text(rng, text) if rng.random() < 0.4 else text
        Path("neurotest.toml").write_bytes(encode(rng, text))
        self.last = text

        def read() -> None:
            with contextlib.redirect_stderr(io.StringIO()):
                description = read_description()
            load("zoo:mnist-lenet1", **{name: value for name, value in description.items() if name != "weights"})

        return read


class Classes:
    name, outside = "classes", False

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.load import load

        text = mutate_text(rng, "\n".join(f"class {n}" for n in range(10)))
        (folder / "classes.txt").write_bytes(encode(rng, text))
        return lambda: load("zoo:mnist-lenet1", classes=folder / "classes.txt")


KINDS = (TargetSpec, DataSpec, MethodSpec, StoredMethod, Toml, Classes)
