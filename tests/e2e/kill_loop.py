"""Five rounds of labelling in which every command is killed before it is done, and the same without: the ends must be equal.

    python tests/e2e/kill_loop.py [--seed 0] [--kills 2] [--format csv]

The stranger's network and photographs; each command dies so many times, before a random act on the disk or after a random time,
and is then typed again, as its user would.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.e2e import kills  # noqa: E402
from tests.e2e.stranger import PHOTOGRAPHS, make_photographs, make_project  # noqa: E402

ROUNDS, SIZE = 5, 6
START = ["select", "py:models.py:cnn", "dir:photos", *PHOTOGRAPHS, "--method", "adaptive", "--budget", str(SIZE), "--out", "run"]


class Loop:
    """The folder of a user who types one command after the other."""

    def __init__(self, folder: Path, truth: dict[str, str], form: str, dice: random.Random | None, count: int) -> None:
        self.folder, self.truth, self.form, self.dice, self.count = folder, truth, form, dice, count
        self.killed = 0
        os.environ["NEUROTEST_CACHE"] = str(folder / "cache")

    def play(self) -> dict[str, Any]:
        self.type(START)
        for number in range(1, ROUNDS + 1):
            out = f"out{number}.{'csv' if self.form == 'csv' else 'json'}"
            self.type(["export", "run", "--format", self.form, "--out", out], done="is there already")
            self.type(["labels", "run", "add", str(self.labelled(out, number)), "--by", "ann"])
            if number < ROUNDS:
                self.type(["select", "--resume", "run"])
        self.type(["labels", "run", "undo", self.names[0]], done="no label to take back")
        self.type(["report", "run"])
        return kills.state(self.folder)

    def type(self, arguments: list[str], done: str = "") -> None:
        """The command, killed some times and then left alone. `done`: what it says if it had done its work when it was killed."""
        for _ in range(self.count if self.dice is not None else 0):
            assert self.dice is not None
            at = self.dice.randint(1, 25) if self.dice.random() < 0.7 else None
            after = None if at is not None else self.dice.uniform(0.0, 0.5)
            code, said, _ = kills.run(arguments, self.folder, after, at)
            if code == -signal.SIGKILL:
                self.killed += 1
            elif code != 0 and not (done and done in said):
                raise AssertionError(f"`{' '.join(arguments)}` ended with {code}: {said}")
            else:
                return  # it was quicker
        code, said, _ = kills.run(arguments, self.folder)
        if code != 0 and not (done and done in said) and not (arguments is START and "holds a run already" in said):
            raise AssertionError(f"`{' '.join(arguments)}` ended with {code}: {said}")

    def labelled(self, out: str, number: int) -> Path:
        """What a person makes of an export."""
        file = self.folder / f"mine{number}.{'csv' if self.form == 'csv' else 'json'}"
        if self.form == "csv":
            with open(self.folder / out, newline="") as exported:
                self.names = [row["file"] for row in csv.DictReader(exported)]
            file.write_text("file,label\n" + "".join(f"{name},{self.truth[name]}\n" for name in self.names))
            return file
        tasks = json.loads((self.folder / out).read_text())
        self.names = [task["data"]["file"] for task in tasks]
        for task, name in zip(tasks, self.names, strict=True):
            task["annotations"] = [{"result": [{"type": "choices", "value": {"choices": [self.truth[name]]}}]}]
        file.write_text(json.dumps(tasks))
        return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=2, help="of every command")
    parser.add_argument("--format", default="csv", choices=["csv", "label-studio"])
    options = parser.parse_args()
    import torch

    import neurotest.cli.app  # noqa: F401 - imported once, for all children

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        (base / "project").mkdir()
        make_project(base / "project")
        work = base / "work" / "user"  # the same place both times: it stands in the runs
        ends = []
        for dice in (None, random.Random(options.seed)):
            shutil.rmtree(work.parent, ignore_errors=True)
            (work / "cache").mkdir(parents=True)
            loop = Loop(work, make_photographs(base / "project", work), options.format, dice, options.kills)
            ends.append(loop.play())
        problem = "" if ends[0] == ends[1] else kills.difference(*ends)
    print(json.dumps({"killed": loop.killed, "rounds": ROUNDS, "problem": problem}))
    raise SystemExit(1 if problem else 0)


if __name__ == "__main__":
    main()
