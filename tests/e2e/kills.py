"""Kill every command that writes, at random moments and at chosen ones, go on, and compare with what it gives uninterrupted.

    python tests/e2e/kills.py --kills 200 [--seed 0] [--only fuzz] [--keep FOLDER]

A child is forked for every command, so that nothing is imported twice. It is killed with SIGKILL after a random time, or just
before its n-th act on the disk: a rename, an unlink, a file that is opened for writing, a sync, a transaction of SQLite.
What counts afterwards: the command, or its --resume, ends well; the files and rows are those of a run that nobody killed;
nothing else lies around.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the sources beside it, whatever is installed

NET, DATA = "zoo:mnist-lenet1", "zoo:mnist/test"
# What differs from run to run by nature: clocks, names, and how often a part was compressed.
CLOCK = {"id", "created", "finished", "seconds", "seconds_by", "clock", "at", "version", "merged"}
STAMP = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+\d\d:\d\d)?|[0-9a-f]{32}|\d+(\.\d+)? (s|ms|seconds)\b")
BESIDE = ("-wal", "-shm", "-journal")
LIMIT = 600  # seconds for one command


@dataclass(frozen=True)
class Scenario:
    """What is started, and how it goes on after a kill. needs: runs that are made once and copied."""

    name: str
    start: list[str]
    again: list[str] | None = None  # None: the same command
    needs: tuple[str, ...] = ()
    setup: list[list[str]] = field(default_factory=list)
    done: tuple[str, ...] = ("is finished: there is nothing to resume", "holds a run already", "it is there already")


def scenarios() -> list[Scenario]:
    out = ["--out", "new"]
    whole = [*out, "--no-report"]  # what cannot be resumed has no way back to its page but `neurotest report`
    resume = ["--resume", "new"]
    study = ["study", "nss", "--only", "mnist-lenet1/"]
    campaign = ["fuzz", NET, f"{DATA}[:20]", "--iterations", "12", "--batch", "32"]
    looks = ["--only", "accuracy", "--only", "labels", "--only", "slices"]
    return [
        Scenario(
            "select", ["select", NET, f"{DATA}[:120]", "--method", "deepgini", "--method", "random", "--budget", "9", *whole]
        ),
        Scenario("adaptive", ["select", NET, "npz:pool.npz#x", "--method", "adaptive", "--budget", "6", *whole]),
        Scenario("labels", ["labels", "adaptive", "add", "labels.csv", "--by", "ann"], needs=("adaptive",)),
        Scenario(
            "round", ["select", "--resume", "adaptive"], needs=("adaptive",), setup=[["labels", "adaptive", "add", "labels.csv"]]
        ),
        Scenario(
            "undo", ["labels", "adaptive", "undo"], needs=("adaptive",), setup=[["labels", "adaptive", "add", "labels.csv"]],
            done=("no label to take back",),
        ),
        Scenario("export folder", ["export", "select", "--format", "folder", *out], needs=("select",)),
        Scenario("export tasks", ["export", "select", "--format", "label-studio", "--out", "new.json"], needs=("select",)),
        Scenario("cover", ["cover", NET, f"{DATA}[:80]", "--criteria", "nc", "--criteria", "kmnc:20", "--train",
                           "zoo:mnist/train[:100]", *whole]),
        Scenario("describe", ["describe", NET, f"{DATA}[:80]", "--method", "class-profile", "--k", "3", *out],
                 ["describe", *resume]),
        Scenario("check", ["check", NET, f"{DATA}[:200]", "--time", "1h", *looks, *out], ["check", *resume]),
        Scenario("score", ["score", NET, f"{DATA}[:1200]", "--method", "margin", "--method", "deepgini", "--batch", "64", *out],
                 ["score", *resume]),
        Scenario("suspects", ["suspects", NET, f"{DATA}[:200]", *whole]),
        Scenario("fuzz", [*campaign, *out], ["fuzz", *resume]),
        Scenario("islands", [*campaign, "--islands", "3", *out], ["fuzz", *resume]),
        Scenario("islands on workers", [*campaign, "--islands", "3", "--workers", "2", *out],
                 ["fuzz", *resume, "--workers", "2"]),
        Scenario("swarm", ["swarm", NET, f"{DATA}[:12]", "--evaluations", "60", "--particles", "6", "--batch", "24", *out],
                 ["swarm", *resume]),
        Scenario("attack", ["attack", NET, f"{DATA}[:40]", "--steps", "4", "--batch", "10", *out], ["attack", *resume]),
        Scenario("diff", ["diff", NET, "zoo:mnist-lenet5", "--seeds", f"{DATA}[:12]", "--steps", "4", "--batch", "4", *out],
                 ["diff", *resume]),
        Scenario("illuminate", ["illuminate", NET, f"{DATA}[:20]", "--forwards", "400", *out], ["illuminate", *resume]),
        Scenario("shrink", ["shrink", "fuzz"], needs=("fuzz",)),
        Scenario("merge", ["merge", "fuzz", "swarm", *whole], needs=("fuzz", "swarm")),
        Scenario("repair", ["repair", NET, "attack", "--train", "zoo:mnist/train[:80]", "--holdout", f"{DATA}[5000:5040]",
                            "--protocol", "default:epochs=3", "--repeats", "1", "--control", "mutated", "--attack", "none", *out],
                 ["repair", *resume], needs=("attack",)),
        Scenario("evaluate", ["evaluate", "attack", *whole], needs=("attack",)),
        Scenario("explain", ["explain", "fuzz", "--out", "new.html", "--limit", "20"], needs=("fuzz",)),
        Scenario("neurons", ["neurons", "swarm", "--pairs", "4", "--rounds", "3", "--out", "new.json"], needs=("swarm",)),
        Scenario("study", [*study, *out], [*study, *resume]),
        Scenario("report", ["report", "fuzz"], needs=("fuzz",)),
    ]  # fmt: skip


# -- running a command in a forked child


def run(arguments: list[str], folder: Path, kill_after: float | None = None, kill_at: int | None = None) -> tuple[int, str, int]:
    """The exit code (negative: killed), what it said on standard error, and how many acts on the disk it made."""
    said, acts = folder.parent / "stderr.txt", folder.parent / "acts.txt"
    for file in (said, acts):
        file.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _child(arguments, folder, said, acts, kill_at)
    late = threading.Event()
    timer = threading.Timer(LIMIT if kill_after is None else kill_after, lambda: (late.set(), os.kill(child, signal.SIGKILL)))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()  # a process with threads must not fork
    text = said.read_text(errors="replace") if said.exists() else ""
    if late.is_set() and kill_after is None:
        raise AssertionError(f"{' '.join(arguments)} took more than {LIMIT} s")
    count = _learn(acts) if acts.exists() else 0
    return os.waitstatus_to_exitcode(status), text, count


def _learn(acts: Path) -> int:
    """How many acts there were; what the child imported is imported here, so that the next ones need not."""
    count, modules = json.loads(acts.read_text())
    for name in modules:
        if name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)
    return int(count)


def _child(arguments: list[str], folder: Path, said: Path, acts: Path, kill_at: int | None) -> None:
    code = 4
    try:
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, handle in enumerate((null, null, errors)):
            os.dup2(handle, number)
        sys.argv = ["neurotest", *arguments]
        counter = _count_acts(folder, kill_at)
        from neurotest.cli.app import main

        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        if kill_at is None:
            acts.write_text(json.dumps([counter[0], sorted(sys.modules)]))
    finally:
        os._exit(code)


def _count_acts(folder: Path, kill_at: int | None) -> list[int]:
    """Count what this process does to the disk below `folder`, and die just before one of it."""
    counter = [0]

    def act() -> None:
        counter[0] += 1
        if counter[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: Any) -> None:
        if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link") or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            act()

    class Counting(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if not sql.startswith(("COMMIT", "BEGIN", "PRAGMA journal_mode")):
                return super().execute(sql, *values)
            act()
            cursor = super().execute(sql, *values)
            act()
            return cursor

    connect, fsync = sqlite3.connect, os.fsync

    def syncing(handle: int) -> None:
        act()
        fsync(handle)
        act()

    sqlite3.connect = lambda *a, **k: connect(*a, **{"factory": Counting, **k})  # type: ignore[assignment]
    os.fsync = syncing  # type: ignore[assignment]
    sys.addaudithook(hook)
    return counter


# -- what there is afterwards


def plain(value: Any) -> Any:
    """JSON without what differs by nature."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in CLOCK}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def database(file: Path) -> dict[str, Any]:
    connection = sqlite3.connect(file)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        tables: dict[str, Any] = {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}
        columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}
    finally:
        connection.close()
    tables["meta"] = {key: plain(json.loads(value)) for key, value in tables["meta"] if key not in CLOCK}
    at = columns["label"].index("at")
    tables["label"] = [(*row[:at], *row[at + 1 :]) for row in tables["label"]]
    return {name: rows for name, rows in tables.items() if name not in ("snapshot", "sqlite_sequence")}  # compressed clocks


def content(file: Path) -> Any:
    if file.name == "run.sqlite":
        return database(file)
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return {name: hashlib.sha256(arrays[name].tobytes()).hexdigest() for name in arrays}
    if file.suffix == ".json":
        return plain(json.loads(file.read_text()))
    if file.suffix == ".html":
        return hashlib.sha256(STAMP.sub(b"", file.read_bytes())).hexdigest()
    return hashlib.sha256(file.read_bytes()).hexdigest()


def state(folder: Path) -> dict[str, Any]:
    """Everything below the folder; the cache by its names only, without the records of runs."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")
    shown: dict[str, Any] = {}
    for file in files:
        name = str(file.relative_to(folder))
        if not name.startswith("cache/runs/"):
            shown[name] = None if name.startswith("cache/") or name.endswith(BESIDE) else content(file)
    return shown


def difference(one: Any, other: Any, where: str = "") -> str:
    """Where two states first differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=str):
            if key not in one or key not in other:
                return f"{where}/{key}: only {'uninterrupted' if key in one else 'after the kill'}"
            if one[key] != other[key]:
                return difference(one[key], other[key], f"{where}/{key}")
    return f"{where}: {str(one)[:300]} uninterrupted, {str(other)[:300]} after the kill"


# -- the trials


class Trials:
    def __init__(self, folder: Path, seed: int) -> None:
        self.base, self.work, self.random = folder / "base", folder / "work", random.Random(seed)
        self.base.mkdir(parents=True)
        os.environ["NEUROTEST_CACHE"] = str(self.work / "cache")
        self.all = {scenario.name: scenario for scenario in scenarios()}
        self.expected: dict[str, tuple[dict[str, Any], int, float]] = {}
        self._data()

    def _data(self) -> None:
        from neurotest.data.spec import data

        source = data(DATA + "[:60]")
        np.savez(self.base / "pool.npz", x=source.read(np.arange(60)))
        ids = source.ids()
        rows = [f"{ids[i]},{int(source.labels[i])}" for i in range(60)]  # type: ignore[index]
        (self.base / "labels.csv").write_text("content,label\n" + "\n".join(rows[:30]) + "\n")

    def fresh(self, scenario: Scenario) -> None:
        """The folder as it is before the command."""
        for need in scenario.needs:
            if not (self.base / need).exists():
                self._prepare(self.all[need], need)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        (self.work / "cache").mkdir()
        for name in ("pool.npz", "labels.csv"):
            shutil.copy(self.base / name, self.work)
        for need in scenario.needs:
            shutil.copytree(self.base / need, self.work / need)
            shutil.copytree(self.base / f"{need}-seal", self.work / "cache" / "runs", dirs_exist_ok=True)
        for arguments in scenario.setup:
            self._well(arguments)

    def _prepare(self, scenario: Scenario, name: str) -> None:
        self.fresh(scenario)
        self._well([name if word == "new" else word for word in scenario.start])
        shutil.copytree(self.work / name, self.base / name)
        shutil.copytree(self.work / "cache" / "runs", self.base / f"{name}-seal")

    def _well(self, arguments: list[str]) -> int:
        code, said, acts = run(arguments, self.work)
        assert code == 0, f"{' '.join(arguments)} ended with {code}: {said}"
        return acts

    def uninterrupted(self, scenario: Scenario) -> tuple[dict[str, Any], int, float]:
        """The state at the end, the acts on the disk, and the seconds it took."""
        if scenario.name not in self.expected:
            self.fresh(scenario)
            began = time.monotonic()
            acts = self._well(scenario.start)
            self.expected[scenario.name] = (state(self.work), acts, time.monotonic() - began)
        return self.expected[scenario.name]

    def trial(self, scenario: Scenario) -> tuple[list[str], str]:
        """Up to four kills, one after the other on the way back; gives when, and what is wrong at the end (nothing: well)."""
        expected, acts, seconds = self.uninterrupted(scenario)
        self.fresh(scenario)
        when: list[str] = []
        arguments = scenario.start
        for _ in range(self.random.choice((1, 1, 2, 4))):
            at = self.random.randint(1, max(1, acts)) if self.random.random() < 0.6 else None
            after = None if at is not None else self.random.uniform(0, seconds)
            code, said, _ = run(arguments, self.work, after, at)
            if code == -signal.SIGKILL:
                when.append(f"act {at} of {acts}" if at is not None else f"{after:.2f} of {seconds:.2f} s")
            elif code != 0 and not _finished(scenario, code, said):
                return when, f"`{' '.join(arguments)}` ended with {code}: {said}"
            arguments = self.next(scenario)
        code, said, _ = run(arguments, self.work)
        if code != 0 and not _finished(scenario, code, said):
            return when, f"`{' '.join(arguments)}` ended with {code}: {said}"
        now = state(self.work)
        return when, "" if now == expected else difference(expected, now)

    def next(self, scenario: Scenario) -> list[str]:
        """--resume where there is a run, else the command again."""
        if scenario.again is not None and (self.work / "new" / "run.sqlite").exists():
            return scenario.again
        return scenario.start


def _finished(scenario: Scenario, code: int, said: str) -> bool:
    return code == 2 and any(sentence in said for sentence in scenario.done)


def trials(kills: int, seed: int, folder: Path, only: str | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """So many kills, spread over the scenarios."""
    import torch

    import neurotest.cli.app  # noqa: F401 - imported once, for all children

    torch.set_num_threads(1)
    work = Trials(folder, seed)
    chosen = [scenario for scenario in work.all.values() if only is None or scenario.name in only.split(",")]
    wrong: list[dict[str, str]] = []
    counts: dict[str, int] = {}
    done, number = 0, 0
    while done < kills or number < len(chosen):
        scenario = chosen[number % len(chosen)]
        times, problem = work.trial(scenario)
        number, done, when = number + 1, done + len(times), ", ".join(times) or "no time, it was quicker"
        counts[scenario.name] = counts.get(scenario.name, 0) + len(times)
        if problem:
            wrong.append({"scenario": scenario.name, "when": when, "problem": problem})
        say(f"{done} of {kills}: {scenario.name}, killed at {when}: {problem or 'as uninterrupted'}")
    return {"kills": done, "trials": number, "seed": seed, "scenarios": counts, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="names of scenarios, separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        errors = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        result = trials(options.kills, options.seed, Path(folder), options.only, errors)
    print(json.dumps(result, indent=1))
    raise SystemExit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
