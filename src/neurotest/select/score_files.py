"""Scores of a run as Parquet files, one per part of the data: written whole, and found again when the run goes on."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.runs.folder import LARGEST, declare
from neurotest.runs.store import Run

FOLDER = "scores"
OURS = declare(rf"{FOLDER}/[0-9]{{8,}}\.parquet", FOLDER)
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Scored inputs: ids, positions in the data, predicted classes, labels where there are any, a column per method."""

    ids: list[str]
    positions: Ints
    predicted: Ints
    labels: Ints | None
    scores: dict[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, parts: Sequence[Rows], methods: Sequence[str]) -> Rows:
        ids = [one for part in parts for one in part.ids]
        positions, predicted = (_concatenate([getattr(part, name) for part in parts]) for name in ("positions", "predicted"))
        labels = None if any(part.labels is None for part in parts) or not parts else _concatenate([p.labels for p in parts])
        scores = {name: np.concatenate([np.empty(0), *(part.scores[name] for part in parts)]) for name in methods}
        return cls(ids, positions, predicted, labels, scores)


def _concatenate(arrays: Sequence[Any]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


def pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(
            "not-installed", "pyarrow", "scores are written as Parquet, which needs pyarrow: pip install 'neurotest[data]'."
        ) from error
    return pyarrow


def write(run: Run, number: int, rows: Rows) -> None:
    arrow = pyarrow()
    columns: dict[str, Any] = {"id": rows.ids, "position": rows.positions, "predicted": rows.predicted}
    if rows.labels is not None:
        columns["label"] = rows.labels
    columns |= {f"score {name}": values for name, values in rows.scores.items()}
    content = io.BytesIO()
    arrow.parquet.write_table(arrow.table(columns), content)
    _file(run, number).write(content.getvalue())


def read(run: Run, number: int, methods: Sequence[str]) -> Rows | None:
    """None where there is no file, or none that can be used: its inputs are scored again."""
    file = _file(run, number)
    if not file.exists():
        return None
    arrow = pyarrow()
    try:
        table = arrow.parquet.read_table(io.BytesIO(file.read(LARGEST)), use_threads=False)
        labels = table["label"].to_numpy() if "label" in table.column_names else None
        scores = {name: table[f"score {name}"].to_numpy() for name in methods}
        ids = [str(one) for one in table["id"].to_pylist()]
        return Rows(ids, table["position"].to_numpy(), table["predicted"].to_numpy(), labels, scores)
    except (arrow.ArrowException, KeyError, ValueError, OSError):
        return None


def numbers(run: Run) -> Iterator[int]:
    """Of the files there are, in order."""
    return iter(sorted(int(name.rpartition("/")[2].split(".")[0]) for name in run.folder.names() if OURS.fullmatch(name)))


def _file(run: Run, number: int) -> Any:
    return run.file(f"{FOLDER}/{number:08d}.parquet")
