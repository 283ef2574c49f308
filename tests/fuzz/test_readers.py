"""No input makes a reader do anything but read it or refuse it in a sentence: a sample here, all of it with `make fuzz`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz import harness
from tests.fuzz.mutators import CANARY, Rng
from tests.fuzz.readers import READERS

from neurotest.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
# What one input costs differs: loading a network takes a hundred times as long as reading a line.
FEWER = {"pt2": 20, "run": 30, "database": 30}
SHORT = {name: FEWER.get(name, 100) for name in READERS}


def fuzz(tmp_path: Path, inputs: dict[str, int]) -> list[dict[str, Any]]:
    file = tmp_path / "outcomes.json"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    readers = ",".join(f"{name}={count}" for name, count in inputs.items())
    command = [sys.executable, "-m", "tests.fuzz", "--readers", readers, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert file.is_file(), done.stderr
    outcomes: list[dict[str, Any]] = json.loads(file.read_text())
    return outcomes


def judge(outcome: dict[str, Any], inputs: int) -> None:
    assert outcome["inputs"] == inputs
    assert not outcome["violations"], outcome["findings"]
    assert outcome["refused"] > inputs // 20, "the inputs are too tame to show anything"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All readers in one process: starting it costs more than reading."""
    return {one["reader"]: one for one in fuzz(tmp_path_factory.mktemp("fuzz"), SHORT)}


@pytest.mark.parametrize("reader", READERS)
def test_some_inputs(reader: str, outcomes: dict[str, dict[str, Any]]) -> None:
    judge(outcomes[reader], SHORT[reader])


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_many_inputs(reader: str, tmp_path: Path) -> None:
    """`make fuzz N=100000` is the same with more; NEUROTEST_FUZZ says how many."""
    inputs = int(os.environ.get("NEUROTEST_FUZZ", 10 * SHORT[reader]))
    judge(fuzz(tmp_path, {reader: inputs})[0], inputs)


# -- the watch itself sees what it must; in a process of its own, because hooks stay


class Misbehaving:
    """A reader that does what none may, one thing after the other."""

    name, outside = "misbehaving", False

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> harness.Read:
        return self.acts(folder).pop(0)

    def acts(self, folder: Path) -> list[harness.Read]:
        if not hasattr(self, "left"):
            self.left: list[harness.Read] = [
                lambda: 1,
                self.refuse,
                lambda: {}["missing"],
                lambda: os.system("true"),
                lambda: exec(f"def f(): {CANARY}()\n"),
                lambda: open("/tmp/neurotest-fuzz-outside", "w"),  # noqa: SIM115
                lambda: open("/etc/hostname").read(),  # noqa: SIM115
                lambda: bytearray(3 << 30),
                self.swallow,
                self.spin,
            ]
        return self.left

    def refuse(self) -> None:
        raise BadInput("no")

    def swallow(self) -> None:
        try:
            os.system("true again")
        except BaseException:
            return

    def spin(self) -> None:
        while True:
            pass


WATCHED = """
import json, sys
from pathlib import Path
from tests.fuzz import harness
from tests.fuzz.test_readers import Misbehaving
harness.SECONDS = 1
scratch = Path(sys.argv[1])
watch = harness.Watch(scratch)
print(json.dumps(harness.run(Misbehaving(), scratch, range(10), 0, watch, lambda n: None).plain()))
"""


def test_the_watch_sees_what_it_must(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    outcome = json.loads(done.stdout)
    assert (outcome["accepted"], outcome["refused"]) == (2, 1), done.stderr  # what swallows its violation ends without an error
    kinds = {one["input"]: one["kind"] for one in outcome["findings"]}
    assert kinds == {2: "KeyError", 3: "act", 4: "act", 5: "act", 6: "act", 7: "MemoryError", 8: "act", 9: "hang"}
