"""The tables of adaptive selection with a prior, each by one command: measured where FILE lacks something, then stored.

python lab/scripts/store_prior.py FILE [NAME ...]      without a name all of them; docs/results/NAME.json

FILE holds one line per pool and variant, as `report_prior.py run` writes them, and may be shared by all tables: a table takes
the lines that it names and no others.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from prior_tables import Line, table
from report_prior import TABLES, Settings, cases, key, keys, read, run, settings

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

NSS = "nss train foreseen unsimulated foreseen-unsimulated self none seeds=100:105"
SHUFFLED = "shuffled train self none mnist-lenet5 fashion-lenet5 mnist-lenet1 mnist-fcnet5 seeds=100:102"
NATURAL = "natural train foreseen self none seeds=100:101"
CORRUPTED = "corrupted train self none seeds=0:1"
FOREIGN = "foreign train foreseen self none mnist-lenet5 mnist-lenet1 seeds=0:5"
STYLED = "styled train foreseen self none cifar10-resnet20 seeds=0:5"


@dataclass(frozen=True)
class Stored:
    """A table: what it is, what `report_prior.py run` takes to measure it, and how it is shown (`table KIND`, or a word)."""

    title: str
    show: str
    runs: tuple[str, ...]


STORED = {
    "prior-mean": Stored(
        "Gain over DeepGini in points, mean over subjects (interval over subjects) and the least", "mean",
        (NSS, NATURAL, CORRUPTED),
    ),
    "prior-nss": Stored("Gain over DeepGini in points on nss pools, interval over pools", "table nss", (NSS,)),
    "prior-natural": Stored("Gain over DeepGini in points on natural pools", "table natural", (NATURAL,)),
    "prior-foreign": Stored(
        "Gain over DeepGini in points, scikit-learn's digits among those of MNIST", "table foreign", (FOREIGN,)
    ),
    "prior-styled": Stored("Gain over DeepGini in points, photographs in another style", "table styled", (STYLED,)),
    "prior-left": Stored(
        "Faults left: intervals, truth and estimates at 5 and 10 % of the labels", "left",
        (NSS, NATURAL, CORRUPTED, FOREIGN, STYLED),
    ),
    "prior-batches": Stored(
        "Large rounds: gain over DeepGini in points, odd test images, 95 % intervals over pools", "batches",
        ("nss unsimulated simple mnist-lenet5 seeds=100:105 rounds=0.005,0.02,0.05",),
    ),
    "prior-shuffled": Stored(
        "Permuted labels: points above random at 2 % of a pool, 95 % interval over permutations", "shuffled",
        (f"{SHUFFLED} to=0.02 permutations=25",),
    ),
    "prior-shuffled-later": Stored(
        "Permuted labels up to 10 %: points above random, 95 % interval over permutations", "shuffled",
        (f"{SHUFFLED} permutations=5",),
    ),
}  # fmt: skip


def lines_of(file: Path, runs: list[Settings]) -> list[Line]:
    """Those that the runs measure, in the runs' order."""
    by_key = {key(x): x for x in read(file)}
    wanted = dict.fromkeys(one for s in runs for case in cases(s) for one in keys(s, *case))
    return [by_key[one] for one in wanted]


def main(file: str, names: list[str]) -> None:
    from _results import Result, parse, save

    from neurotest import __version__

    for name in names or list(STORED):
        stored = STORED[name]
        runs = [settings([file, *words.split()], True) for words in stored.runs]
        for one in runs:
            run(one)
        lines, printed = lines_of(Path(file), runs), io.StringIO()
        show, *kinds = stored.show.split()
        with contextlib.redirect_stdout(printed):
            table(lines, *kinds) if show == "table" else TABLES[show](lines)
        columns, rows = parse(printed.getvalue().splitlines())
        result = Result(
            title=stored.title, command=f"python lab/scripts/store_prior.py FILE {name}", version=__version__,
            date=datetime.date.today().isoformat(), columns=columns, rows=rows,
        )  # fmt: skip
        print(save(name, result))


if __name__ == "__main__":
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(STORED):
        raise SystemExit(f"{__doc__}\nNames: {', '.join(STORED)}")
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])
