"""No file that is small on the disk takes much memory or time: each is read by a process with 2 GB beyond what torch has."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
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
def test_no_bomb_takes_the_machine(name: str, readers: Readers, tmp_path: Path) -> None:
    bomb = BOMBS[name]
    if bomb.missing:
        pytest.skip(f"{name} needs {bomb.missing}")
    outcome = readers.read(name, tmp_path / "bomb")
    assert outcome["disk"] < DISK or bomb.refused is False, "what is large on the disk is no bomb"
    assert "error" not in outcome, outcome
    assert outcome["memory"] < MEMORY, outcome
    assert outcome["seconds"] < SECONDS, outcome
    if bomb.refused is not None:
        assert (outcome["refused"] is not None) == bomb.refused, outcome
    if outcome["refused"] is not None:
        assert "\n" not in outcome["refused"], outcome
        assert len(outcome["refused"]) < LONGEST + len(str(tmp_path)), outcome


class Readers:
    """One process that has imported torch and our readers; each bomb is read by a process forked from it."""

    def __init__(self, cache: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.fuzz.test_bombs"]
        self.errors = open(cache / "errors", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**environment, "NEUROTEST_CACHE": str(cache)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True,
        )  # fmt: skip

    def read(self, name: str, folder: Path) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, str(folder)]), file=self.process.stdin, flush=True)
        outcome: dict[str, Any] = json.loads(self.process.stdout.readline() or '{"error": "the readers have ended"}')
        if "error" in outcome:
            self.errors.seek(0)
            outcome["error"] += self.errors.read()[-1000:]
        return outcome

    def close(self) -> None:
        self.process.communicate()
        self.errors.close()


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    started = Readers(tmp_path_factory.mktemp("cache"))
    yield started
    started.close()


def read(bomb: Bomb, folder: Path) -> dict[str, Any]:
    """In the process of its own: limit the memory, read the bomb."""
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
    return outcome


def main() -> None:
    """For each line on standard input, the name of a bomb and a folder: make it there, and print what reading it came to."""
    import torch  # noqa: F401

    import neurotest.data.spec
    import neurotest.target.load  # noqa: F401

    for line in sys.stdin:
        name, folder = json.loads(line)
        bomb, place = BOMBS[name], Path(folder)
        place.mkdir()
        # Making it takes much memory, so that is done by a process of its own, too.
        ended, _ = forked(lambda bomb=bomb, place=place: bomb.make(place))
        text = ""
        if ended == 0:
            ended, text = forked(lambda bomb=bomb, place=place: json.dumps(read(bomb, place)))
        print(text or json.dumps({"error": f"a process ended with {ended}. "}), flush=True)


def forked(work: Callable[[], str | None]) -> tuple[int, str]:
    """How a process ended that did this, and what it gave."""
    answer, out = os.pipe()
    if not (child := os.fork()):
        code = 1
        try:
            os.write(out, (work() or "").encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(out)
    with open(answer) as content:
        text = content.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    main()
