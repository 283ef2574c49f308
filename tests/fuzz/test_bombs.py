"""No file that is small on the disk takes much memory or time: each is read by a process with 2 GB beyond what torch has."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.bombs import columns, inputs, networks, stored  # noqa: F401  (they register)
from tests.fuzz.bombs.registry import BOMBS, Bomb

ROOT = Path(__file__).resolve().parents[2]
ADDRESSES = 2 << 30  # bytes that may be asked for
MEMORY = 1 << 30  # bytes that may be held
SECONDS = 10  # of the processor
LONGEST = 400  # characters of a sentence
DISK = 64 << 20  # bytes of a bomb


def marked(bomb: Bomb) -> Any:
    """onnx is installed by `make test-peers` only, transformers by `make test-models`."""
    marks = [pytest.mark.peer("onnx")] if "onnx" in bomb.needs else []
    marks += [pytest.mark.models("transformers")] if "transformers" in bomb.needs else []
    return pytest.param(bomb.name, marks=marks)


@pytest.mark.parametrize("name", [marked(bomb) for bomb in BOMBS.values()])
def test_no_bomb_takes_the_machine(name: str, tmp_path: Path) -> None:
    bomb = BOMBS[name]
    if bomb.missing:
        pytest.skip(f"{name} needs {bomb.missing}")
    outcome = run(name, tmp_path)
    assert outcome["disk"] < DISK or bomb.refused is False, "what is large on the disk is no bomb"
    assert "error" not in outcome, outcome
    assert outcome["memory"] < MEMORY, outcome
    assert outcome["seconds"] < SECONDS, outcome
    if bomb.refused is not None:
        assert (outcome["refused"] is not None) == bomb.refused, outcome
    if outcome["refused"] is not None:
        assert "\n" not in outcome["refused"], outcome
        assert len(outcome["refused"]) < LONGEST + len(str(tmp_path)), outcome


def run(name: str, folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    environment["NEUROTEST_CACHE"] = str(folder / "cache")
    command = [sys.executable, "-m", "tests.fuzz.test_bombs", name, str(folder / "bomb")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"error": f"exit {done.returncode}: {done.stderr[-1000:]}"}
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def made(bomb: Bomb, folder: Path) -> None:
    """By a process of its own: it takes much memory."""
    folder.mkdir()
    if not (child := os.fork()):
        code = 1
        try:
            bomb.make(folder)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, f"{bomb.name} cannot be made"


def main(name: str, folder: Path) -> None:
    """In the process of its own: make the bomb, limit the memory, read."""
    bomb = BOMBS[name]
    made(bomb, folder)
    import torch  # noqa: F401
    from tests.fuzz.harness import _causes

    from neurotest.errors import BadInput
    from neurotest.memory import peak

    addresses, resident = (int(word) * resource.getpagesize() for word in Path("/proc/self/statm").read_text().split()[:2])
    before = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, resource.RLIM_INFINITY))
    outcome: dict[str, Any] = {"refused": None}
    try:
        bomb.read(folder)
    except BadInput as error:
        outcome["refused"] = str(error)
        if any(isinstance(cause, MemoryError) for cause in _causes(error)):
            outcome["error"] = "it was refused only because memory ran out"
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"[:300]
    after = resource.getrusage(resource.RUSAGE_SELF)
    outcome["seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
    outcome["memory"] = max(0, peak() - resident)
    outcome["disk"] = 512 * sum(file.stat().st_blocks for file in folder.rglob("*") if file.is_file())
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
