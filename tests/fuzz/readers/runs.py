"""Runs that somebody sends: the database, its rows and entries, the parts and pictures beside it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tests.fuzz.harness import Read
from tests.fuzz.mutators import FLOATS, NUMBERS, WORDS, Rng, dump, mutate_bytes, mutate_json, pick
from tests.fuzz.readers.data import odd_archive

from neurotest.runs.store import Run

TARGET, SEEDS = "zoo:mnist-lenet1", "zoo:mnist/test[:12]"


def fuzzed(place: Path) -> None:
    import neurotest

    neurotest.fuzz(TARGET, SEEDS, "nlc", forwards=128, batch=32, tries=4, out=place)


def attacked(place: Path) -> None:
    import neurotest

    neurotest.attack(TARGET, SEEDS, "fgsm:0.3", batch=6, out=place)


def selected(place: Path) -> None:
    import neurotest

    neurotest.select(TARGET, SEEDS, "deepgini", 4, out=place)


def adapted(place: Path) -> None:
    """An adaptive selection with labels, in its second round."""
    import neurotest
    from neurotest.data.source import ArraySource
    from neurotest.select.adaptive.rounds import resume

    source = neurotest.data("zoo:mnist/test[:40]")
    pool = ArraySource(source.read(np.arange(40)), names=[f"IMG_{number}.png" for number in range(40)])
    first = neurotest.select(TARGET, pool, "adaptive:audit=0.4", 5, train="zoo:mnist/train[:60]", out=place)
    with Run.open(place, write=True) as run:
        run.add_labels({p: p % 10 for p in first.indices.tolist()})
    resume(place, pool=pool)


def swarmed(place: Path) -> None:
    import neurotest

    neurotest.swarm(TARGET, SEEDS, limit=4, evaluations=40, beside=("noise",), out=place)


def interrupted(place: Path) -> None:
    """An attack that was stopped after its first part."""
    import neurotest
    from neurotest.errors import Interrupted

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    try:
        neurotest.attack(TARGET, SEEDS, "fgsm:0.3", batch=6, out=place, progress=stop)
    except Interrupted:
        return
    raise AssertionError("it was not interrupted")


def look(path: Path) -> None:
    """Everything the store hands out."""
    with Run.open(path) as run:
        _ = run.inputs(), run.files(), run.labels(), run.keys(), run.made_here
        for method in run.methods():
            run.ranking(method.name)
        for file in run.files():
            run.load_input(file.position, file.role)
        for key in list(run.keys()):
            _ = run[key]


def report(path: Path) -> None:
    from neurotest.report import write_report

    write_report(path, path.parent / "report.html")


def export(path: Path) -> None:
    from neurotest.select.exchange import export as write

    place = path.parent / "exported.csv"
    place.unlink(missing_ok=True)
    write(path, "csv", place)


def stands(path: Path) -> None:
    from neurotest.select.adaptive.rounds import status as read

    read(path)


def proposed(path: Path) -> None:
    from neurotest.select.adaptive.rounds import resume

    resume(path)


def labelled(path: Path) -> None:
    from neurotest.select.adaptive.labelling import add_labels, undo

    file = path.parent / "labels.csv"
    file.write_text("file,label\nIMG_3.png,3\n")
    add_labels(path, file, replace=True)
    undo(path, "IMG_3.png")


def judged(path: Path) -> None:
    from neurotest.evaluate.readers import read_suite

    read_suite(path)


def listed(path: Path) -> None:
    from neurotest.runs.listing import list_runs

    list_runs(path.parent)


def families(path: Path) -> None:
    from neurotest.campaign import families as read

    read(path).table()


def status(path: Path) -> None:
    from neurotest.campaign import status as read

    read(path)


def replayed(path: Path) -> None:
    from neurotest.campaign import replay

    replay(f"{path}#0")


def resumed_fuzz(path: Path) -> None:
    import neurotest

    neurotest.fuzz(resume=path, forwards=96)


def resumed_attack(path: Path) -> None:
    import neurotest

    neurotest.attack(resume=path)


def resumed_swarm(path: Path) -> None:
    import neurotest

    neurotest.swarm(resume=path)


ANY: tuple[Callable[[Path], None], ...] = (look, report, listed, judged)
RUNS: dict[str, tuple[Callable[[Path], None], tuple[Callable[[Path], None], ...]]] = {
    "fuzz": (fuzzed, (*ANY, families, status, replayed, resumed_fuzz)),
    "attack": (attacked, ANY),
    "select": (selected, (*ANY, export)),
    "adaptive": (adapted, (*ANY, export, stands, stands, proposed, labelled)),
    "swarm": (swarmed, (*ANY, families, status, resumed_swarm)),
    "half": (interrupted, (*ANY, resumed_attack)),
}


class Stored:
    """Runs of several commands, copied and changed for every input."""

    outside = False
    homes: ClassVar[list[Path]] = []  # made once for both readers

    def prepare(self, folder: Path) -> None:
        if not Stored.homes:
            Stored.homes.append(folder / "kept")
            for name, (make, _) in RUNS.items():
                make(folder / "kept" / name)
            report(folder / "kept" / "select")  # what draws charts reserves gigabytes of addresses: before memory is limited
        self.home = Stored.homes[0]

    def copy(self, rng: Rng, folder: Path) -> tuple[Path, Callable[[Path], None]]:
        name = pick(rng, list(RUNS))
        place = folder / "runs" / "run"
        shutil.rmtree(place.parent, ignore_errors=True)
        place.parent.mkdir()
        shutil.copytree(self.home / name, place)
        return place, pick(rng, RUNS[name][1])


class Database(Stored):
    """The bytes of the database, and its schema."""

    name = "database"
    SCHEMA = (
        "CREATE VIEW evil AS SELECT 1",
        "CREATE TABLE sqlite_evil (a)",
        "CREATE  VIRTUAL TABLE f USING fts5(a)",
        "DROP TABLE meta",
        "CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT load_extension('x'); END",
        "ALTER TABLE input ADD COLUMN more",
        'CREATE TABLE "a\'b" (x)',
        "PRAGMA user_version=99",
        "PRAGMA user_version=-1",
        "PRAGMA application_id=1",
        "DELETE FROM meta",
        "ALTER TABLE input RENAME COLUMN content TO other",
        "CREATE INDEX i ON input (abs(label))",
        "PRAGMA user_version=1",
    )

    def case(self, rng: Rng, folder: Path) -> Read:
        place, command = self.copy(rng, folder)
        file = place / "run.sqlite"
        if rng.random() < 0.3:
            change = pick(rng, self.SCHEMA)
            execute(file, change)
            self.last: Any = change
        else:
            file.write_bytes(mutate_bytes(rng, file.read_bytes()))
        return lambda: command(place)


def execute(file: Path, *statements: Any) -> None:
    database = sqlite3.connect(file)
    try:
        for statement in statements:
            statement, values = statement if isinstance(statement, tuple) else (statement, ())
            database.execute("PRAGMA writable_schema=ON")
            database.execute("PRAGMA ignore_check_constraints=ON")
            database.execute(statement, values)
        database.commit()
    except (sqlite3.Error, OverflowError, UnicodeError):
        pass  # SQLite itself does not take it
    finally:
        database.close()


class Tampered(Stored):
    """A sound database with entries and rows that are not what they should be, and changed files beside it."""

    name = "run"

    def case(self, rng: Rng, folder: Path) -> Read:
        place, command = self.copy(rng, folder)
        file = place / "run.sqlite"
        match int(rng.integers(4)):
            case 0 | 1:
                self._entry(rng, file)
            case 2:
                self._row(rng, file)
            case _:
                self._file(rng, place)
        self.last = (command.__name__, getattr(self, "last", None))
        return lambda: command(place)

    def _entry(self, rng: Rng, file: Path) -> None:
        database = sqlite3.connect(file)
        entries = dict(database.execute("SELECT key, value FROM meta").fetchall())
        database.close()
        key = pick(rng, list(entries))
        value = dump(mutate_json(rng, [json.loads(entries[key])]))[1:-1] or "null"
        self.last: Any = (key, value)
        execute(file, ("UPDATE meta SET value = ? WHERE key = ?", (value.encode("utf-8", "replace").decode(), key)))

    def _row(self, rng: Rng, file: Path) -> None:
        database = sqlite3.connect(file)
        tables = [
            t for (t,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        ]
        filled = [t for t in tables if database.execute(f"SELECT 1 FROM {t} LIMIT 1").fetchone()]
        table = pick(rng, filled)
        column = pick(rng, [row[1] for row in database.execute(f"PRAGMA table_info({table})")])
        database.close()
        value = pick(
            rng, (None, b"", b"\xff\0", pick(rng, NUMBERS), pick(rng, FLOATS), pick(rng, WORDS), "{}", "[]", "[1]", '{"a": 1}')
        )
        self.last = (table, column, value)
        execute(file, (f"UPDATE OR IGNORE {table} SET {column} = ?", (value,)))

    def _file(self, rng: Rng, place: Path) -> None:
        files = [file for file in sorted(place.rglob("*")) if file.is_file() and file.name not in ("run.sqlite", ".lock")]
        file = pick(rng, files)
        self.last = file.name
        if file.parent.name == "parts" and rng.random() < 0.7:  # sound for all that the run says of it, and odd inside
            with np.load(file) as arrays:
                file.write_bytes(odd_archive(rng, dict(arrays)))
            execute(place / "run.sqlite", "DELETE FROM meta WHERE key = 'parts digests'")
            return
        match int(rng.integers(4)):
            case 0:
                file.unlink()
            case 1:
                file.unlink()
                file.mkdir()
            case _:
                file.write_bytes(mutate_bytes(rng, file.read_bytes()))


class PartFiles:
    """Finished pieces of interrupted work. Whoever changes one can also take away what the run says of its content."""

    name, outside = "parts", False

    def prepare(self, folder: Path) -> None:
        from neurotest.jobs.parts import DIGESTS, Parts

        self.arrays = {"x": np.zeros((2, 1, 6, 6), np.float32), "rows": np.arange(2), "flag": np.array([True, False])}
        for name in ("run", "undigested"):
            with Run.create(folder / name, "attack", {}) as run:
                Parts(run).add(self.arrays)
                if name == "undigested":
                    del run[DIGESTS]
        self.seed = (folder / "run" / "parts" / "000000.npz").read_bytes()

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.jobs.parts import Parts

        content = mutate_bytes(rng, self.seed) if rng.random() < 0.5 else odd_archive(rng, self.arrays)
        place = folder / ("run" if rng.random() < 0.05 else "undigested")
        (place / "parts" / "000000.npz").write_bytes(content)

        def read() -> None:
            with Run.open(place) as run:
                list(Parts(run))

        return read


class Pictures:
    """The inputs of a run: PNG, and arrays with a header of their own."""

    name, outside = "pictures", False

    def prepare(self, folder: Path) -> None:
        from neurotest.runs import codec

        self.seeds = [
            codec.encode(x, folder / str(n))
            for n, x in enumerate((np.zeros((3, 6, 6), np.uint8), np.zeros((1, 6, 6), np.float32)))
        ]
        self.contents = [file.read_bytes() for file in self.seeds]

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.runs import codec

        content = mutate_bytes(rng, pick(rng, self.contents), self.contents)
        file = folder / f"a{pick(rng, ('.png', '.npy'))}"
        file.write_bytes(content)
        return lambda: codec.decode(file)


KINDS = (Database, Tampered, PartFiles, Pictures)
