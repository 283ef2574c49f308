"""A campaign's tables and files: mutants, the corpus, and snapshots of where the fuzzer stands.

Each batch is one transaction: its mutants and all counters. Files are written before the rows that name them. About once a
second the state of corpus and guide goes along; whoever resumes starts there and repeats the batches since, which is exact,
because every draw is a function of the seed and the iteration.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest.arrays import map_npy
from neurotest.coverage.criterion import Arrays
from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Entry
from neurotest.generate.fuzz.mutants import Key, Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.mutate import chain as chains
from neurotest.mutate.chain import Chain
from neurotest.runs import codec
from neurotest.runs.folder import LARGEST as LARGEST_FILE
from neurotest.runs.folder import RunFile, declare
from neurotest.runs.rows import InputRow, dumps, loads
from neurotest.runs.store import Run

FAULTS = "faults"
SEEDS = "seeds.npy"
declare(r"seeds\.npy")
LARGEST = 1 << 28  # bytes a packed thing may have when unpacked

COLUMNS = (
    "number, batch, iteration, root, content, expected, predicted, oracle, operator, accepted, gain, l0, l2, linf, chain, file, "
    "answer"
)


@dataclass(frozen=True)
class StoredMutant:
    """A row of a campaign."""

    number: int
    batch: int
    iteration: int
    root: int  # position in the data
    content: str
    expected: int
    predicted: int
    oracle: str | None
    operator: str
    accepted: bool
    gain: float
    distance: tuple[float, float, float]
    chain: Chain
    file: RunFile | None
    answer: float | None = None  # the quantity that a network predicts, where it predicts one

    @property
    def family(self) -> Key:
        return (self.expected, self.predicted, self.operator)


class Snapshot(NamedTuple):
    """A snapshot: plain state, the guide's arrays, the entries of the corpus, and the control's plain state."""

    plain: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    entries: dict[int, Entry]
    control: dict[str, Any] | None


class Store:
    """A run as a campaign."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._on_disk: set[int] = set()  # corpus entries

    # -- seeds

    def begin(self, seeds: Seeds) -> None:
        """Write the seeds down, images first."""
        write_seeds(self.run, seeds.x)
        self.run.add_inputs(
            InputRow(int(p), str(c), int(label) if label >= 0 else None, int(predicted), seeds.about(row))
            for row, (p, c, label, predicted) in enumerate(
                zip(seeds.positions, seeds.contents, seeds.roots.labels, seeds.roots.predicted, strict=True)
            )
        )

    def seeds(self) -> tuple[NDArray[np.generic], dict[int, int]]:
        """The seeds' images, and which row of them stands for which position."""
        file = self.run.file(SEEDS)
        with file.open() as stream:
            x = map_npy(stream, str(file), largest=LARGEST_FILE)
        rows = self.run.rows("SELECT position FROM input ORDER BY position")
        if not x.ndim or len(rows) != len(x):
            raise BadInput(
                "damaged", "seeds", f"{file} holds {len(x) if x.ndim else 1} seeds, the run names {len(rows)}: it is damaged."
            )
        return x, {int(position): row for row, (position,) in enumerate(rows)}

    def reopen(self, seeds: Seeds) -> None:
        """Refuse seeds that are not the run's. Write the file of images again if it is damaged."""
        rows = self.run.rows("SELECT content FROM input ORDER BY position")
        if [str(content) for (content,) in rows] != seeds.contents.tolist():
            raise BadInput(
                "changed",
                "seeds",
                f"the seeds are not those {self.run.path} was started with: resume it with the same data, or start a new one.",
            )
        try:
            x, _ = self.seeds()
            same = x.dtype == seeds.x.dtype and np.array_equal(x, seeds.x)
        except (BadInput, OSError):
            same = False
        if not same:
            write_seeds(self.run, seeds.x)

    # -- mutants

    def add(self, mutants: Sequence[Mutant], seeds: Seeds, names: dict[int, str]) -> None:
        """Rows of mutants; `names` are their files, by number."""
        self.run.change(
            f"INSERT OR IGNORE INTO mutant ({COLUMNS}) VALUES ({', '.join('?' * 17)})",
            [
                (
                    m.number, m.batch, m.iteration, int(seeds.positions[m.root]), m.content, m.expected, m.predicted, m.oracle,
                    m.operator, int(m.accepted), m.gain, *m.distance, dumps(chains.plain(m.chain)), names.get(m.number),
                    m.answer,
                )
                for m in mutants
            ],
        )  # fmt: skip

    def add_control(self, batch: int, contents: Sequence[int]) -> None:
        """What the control output in a batch: needed to count equal images once after a resume."""
        if contents:
            packed = np.array(contents, dtype="<u8").tobytes()
            self.run.change("INSERT OR REPLACE INTO control VALUES (?, ?)", [(batch, packed)])

    def control(self, batch: int) -> list[int]:
        """Contents of everything the control output up to this batch."""
        rows = self.run.rows("SELECT contents FROM control WHERE batch <= ? ORDER BY batch", batch)
        contents: list[int] = np.frombuffer(b"".join(bytes(content) for (content,) in rows), dtype="<u8").tolist()
        return contents

    def contents(self, batch: int) -> Iterator[int]:
        """Contents of all mutants up to this batch, as numbers."""
        return (int(str(content), 16) for (content,) in self.run.rows("SELECT content FROM mutant WHERE batch <= ?", batch))

    def kept(self) -> Counter[Key]:
        """How many images each family has."""
        query = "SELECT expected, predicted, operator, count(*) FROM mutant WHERE file IS NOT NULL GROUP BY 1, 2, 3"
        return Counter({(int(e), int(p), str(operator)): int(n) for e, p, operator, n in self.run.rows(query)})

    def operators(self) -> list[str]:
        return [str(operator) for (operator,) in self.run.rows("SELECT DISTINCT operator FROM mutant")]

    def add_rows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Mutants of other campaigns, as rows of COLUMNS."""
        self.run.change(f"INSERT INTO mutant ({COLUMNS}) VALUES ({', '.join('?' * 17)})", rows)

    def add_shrunk(self, rows: Iterable[Sequence[Any]]) -> None:
        self.run.change("INSERT OR REPLACE INTO shrunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [tuple(row) for row in rows])

    def shrunk(self) -> list[tuple[Any, ...]]:
        return self.run.rows("SELECT * FROM shrunk")

    def save(self, mutant: Mutant, bounds: tuple[float, float]) -> tuple[str, int]:
        """Write a fault's image, read it back, and give its name and size; what reads back otherwise is refused."""
        file = codec.encode(np.asarray(mutant.x), self.run.file(f"{FAULTS}/fault-{mutant.number:06d}"), bounds, self.run.rate)
        if not np.array_equal(codec.decode(file), np.asarray(mutant.x)):
            raise BadInput("not-writable", "snapshot", f"{file} does not read back as it was written: is the disk in order?")
        files = {file, codec.picture(file) or file}
        return file.name, sum(status.st_size for one in files if (status := one.status()) is not None)

    def mutants(self, where: str = "1", *values: Any) -> list[StoredMutant]:
        """Rows in the order they came out."""
        return [self._read(row) for row in self.run.rows(f"SELECT {COLUMNS} FROM mutant WHERE {where} ORDER BY number", *values)]

    def faults(self) -> list[StoredMutant]:
        return self.mutants("oracle IS NOT NULL")

    def outcomes(self) -> list[tuple[Key, bool]]:
        """The family of every mutant, and whether it is a fault, in the order they came out."""
        rows = self.run.rows("SELECT expected, predicted, operator, oracle FROM mutant ORDER BY number")
        return [((expected, predicted, operator), oracle is not None) for expected, predicted, operator, oracle in rows]

    def faults_by_batch(self) -> list[tuple[int, int]]:
        """How many faults each batch gave."""
        query = "SELECT batch, count(*) FROM mutant WHERE oracle IS NOT NULL GROUP BY batch ORDER BY batch"
        return [(int(batch), int(count)) for batch, count in self.run.rows(query)]

    def first_batches(self) -> dict[tuple[int, int, int, str], int]:
        """The batch in which a seed first had a fault of a family: (position, expected, predicted, operator) -> batch."""
        columns = "root, expected, predicted, operator"
        query = f"SELECT {columns}, min(batch) FROM mutant WHERE oracle IS NOT NULL GROUP BY {columns}"
        return {(int(r), int(e), int(p), str(o)): int(batch) for r, e, p, o, batch in self.run.rows(query)}

    def firsts(self) -> tuple[dict[tuple[int, Key], int] | None, dict[tuple[int, Key], int] | None]:
        """When, in forward passes, each seed (by row) first had a fault of each family: in the campaign, and in its control.

        None where the last snapshot does not tell: merged campaigns have none, those of the first versions did not count.
        """
        tallies = []
        for name in ("plain", "control"):
            rows = self.run.rows("SELECT content FROM snapshot WHERE name = ?", name)
            tally = Tally(first=None)
            if rows:
                try:
                    tally.read_first(json.loads(unpack(rows[0][0])).get("first"))
                except (ValueError, TypeError, AttributeError, zlib.error):
                    raise BadInput(
                        "damaged", "snapshot", f"{self.run.path} holds a damaged snapshot; its faults are safe."
                    ) from None
            tallies.append(tally.first)
        return tallies[0], tallies[1]

    def _read(self, row: tuple[Any, ...]) -> StoredMutant:
        where = self.run.file("run.sqlite").path
        try:
            number, batch, iteration, root = (int(v) for v in row[:4])
            distance = (float(row[11]), float(row[12]), float(row[13]))
            return StoredMutant(
                number, batch, iteration, root, str(row[4]), int(row[5]), int(row[6]),
                None if row[7] is None else str(row[7]), str(row[8]),
                bool(row[9]), float(row[10] or 0.0), distance, chains.read(loads(row[14], where)),
                None if row[15] is None else self.run.file(str(row[15])), None if row[16] is None else float(row[16]),
            )  # fmt: skip
        except (TypeError, ValueError):
            raise BadInput(
                "damaged", "mutant", f"{where} holds a mutant that does not fit: it is damaged or not a run of neurotest."
            ) from None

    # -- snapshots

    def snapshot(
        self, plain: dict[str, Any], arrays: Arrays, entries: Iterable[Entry], control: dict[str, Any] | None = None
    ) -> None:
        """Where the fuzzer and its control stand; of the corpus only what changed is written."""
        from safetensors.numpy import save

        alive = {entry.number: entry for entry in entries}
        new = [entry for number, entry in alive.items() if number not in self._on_disk]
        with self.run.transaction():
            self.run.change("DELETE FROM corpus WHERE number = ?", [(number,) for number in self._on_disk - alive.keys()])
            self.run.change(
                "INSERT OR REPLACE INTO corpus VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (e.number, e.root, int(e.used), dumps(chains.plain(e.chain)), _pack(e, e.x), _pack(e, e.reference))
                    for e in new
                ],
            )
            guide = save({name: np.ascontiguousarray(value) for name, value in arrays.items()}) if arrays else b""
            contents = [("plain", zlib.compress(json.dumps(plain).encode(), 1)), ("guide", zlib.compress(guide, 1))]
            if control is not None:
                contents.append(("control", zlib.compress(json.dumps(control).encode(), 1)))
            self.run.change("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", contents)
        self._on_disk = set(alive)

    def read_snapshot(self, seeds: Seeds) -> Snapshot | None:
        """The last snapshot. None: there is none yet."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        packed = {str(name): content for name, content in self.run.rows("SELECT name, content FROM snapshot")}
        if not packed:
            return None
        try:
            plain = json.loads(unpack(packed["plain"]))
            control = json.loads(unpack(packed["control"])) if "control" in packed else None
            guide = unpack(packed["guide"])
            arrays = load(guide) if guide else {}
            entries = {}
            for number, root, used, chain, x, reference in self.run.rows("SELECT * FROM corpus"):
                image, moved = _image(x, seeds, int(root)), _image(reference, seeds, int(root))
                entries[int(number)] = Entry(int(number), int(root), image, moved, bool(used), chains.read(json.loads(chain)))
        except (KeyError, ValueError, TypeError, zlib.error, SafetensorError) as error:
            raise BadInput(
                "damaged",
                "snapshot",
                f"{self.run.path} cannot be resumed, its snapshot is damaged ({type(error).__name__}). Its faults are safe: "
                "`neurotest families` and `neurotest report` still work; start a new campaign with another --out.",
            ) from error
        self._on_disk = set(entries)
        return Snapshot(plain, arrays, entries, control)


def write_seeds(run: Run, x: NDArray[np.generic]) -> None:
    with run.file(SEEDS).writing() as out:
        np.lib.format.write_array(out, np.ascontiguousarray(x), version=(1, 0), allow_pickle=False)


def _pack(entry: Entry, x: NDArray[np.generic]) -> bytes:
    return zlib.compress(np.ascontiguousarray(x).tobytes(), 1) if entry.chain else b""  # a seed lies in seeds.npy


def unpack(content: bytes, largest: int = LARGEST) -> bytes:
    """What `zlib` packed, if it is not more than that."""
    stream = zlib.decompressobj()
    data = stream.decompress(content, largest + 1)
    if len(data) > largest:
        raise BadInput(
            "too-large", "row", f"the run holds a row of more than {largest:,} bytes when unpacked: refused, it is damaged."
        )
    return data


def _image(content: bytes, seeds: Seeds, root: int) -> NDArray[np.generic]:
    seed = seeds.x[root]
    if not content:
        return np.asarray(seed)
    return np.frombuffer(unpack(content, seed.nbytes), dtype=seed.dtype).reshape(seed.shape)
