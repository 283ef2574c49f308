"""The scripts behind the stored tables of adaptive selection: which lines a table takes, and how far a gap is closed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import prior_tables
import report_prior
import store_prior

from neurotest import zoo


def test_a_gap_closed_by_hand() -> None:
    """From 10 and 20 to 14 and 24, where 18 and 28 were to be reached: half; each pool alone says the same."""
    pools = np.array([[10.0, 20.0], [14.0, 24.0], [18.0, 28.0]])
    assert prior_tables.closed([pools]) == pytest.approx((0.5, 0.5, 0.5))
    assert prior_tables.percent(prior_tables.closed([pools, pools])) == "50% (50% .. 50%)"


def test_the_interval_of_a_closed_gap_holds_what_single_pools_say() -> None:
    pools = np.array([[0.0] * 5, [2.0, 4.0, 5.0, 6.0, 8.0], [10.0] * 5])
    value, low, high = prior_tables.closed([pools])
    assert value == 0.5
    assert 0.2 <= low < 0.42
    assert 0.58 < high <= 0.8


def test_what_is_proposed_without_labels_is_measured_once_for_all_rounds(tmp_path: Path) -> None:
    words = ["nss", "foreseen", "self", "foreseen-unsimulated", "mnist-lenet5", "seeds=3:5", "rounds=0.005,0.02"]
    some = report_prior.settings([str(tmp_path / "lines"), *words], True)
    lines = [(key[2], key[3], key[4]) for case in report_prior.cases(some) for key in report_prior.keys(some, *case)]
    once = ("foreseen", 0.005), ("self", 0.005), ("self", 0.02), ("foreseen-unsimulated", 0.005)
    assert lines == [(seed, *one) for seed in (3, 4) for one in once]


def test_without_names_the_networks_that_take_pictures_are_measured(tmp_path: Path) -> None:
    """A bank changes pictures as cameras do; what hears is measured elsewhere."""
    names = [name for _, name, _ in report_prior.cases(report_prior.settings([str(tmp_path / "lines"), "natural"], True))]
    assert {"mnist-lenet5", "cifar10-resnet20"} <= set(names)
    assert all(len(zoo.find(name).shape) == 3 for name in names)
    assert any(one.weights is not None and one.name not in names for one in zoo.catalogue())


def test_two_lengths_of_a_run_are_two_measurements(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    common = {"subject": "mnist-lenet5", "kind": "shuffled", "seed": 1, "variant": "self", "round": 0.005, "audit": 0.0}
    file.write_text("".join(json.dumps({**common, **more}) + "\n" for more in ({"word": "long"}, {"to": 0.02, "word": "short"})))
    words = [str(file), "shuffled", "self", "mnist-lenet5", "seeds=1:2"]
    runs = [report_prior.settings([*words, *more], True) for more in ([], ["to=0.02"])]
    assert [[line["word"] for line in store_prior.lines_of(file, [one])] for one in runs] == [["long"], ["short"]]


def test_a_table_takes_the_lines_of_its_runs_only(tmp_path: Path) -> None:
    """A file may hold those of other tables, and one line twice: the later counts."""
    file = tmp_path / "lines"
    common = {"subject": "mnist-lenet5", "kind": "nss", "variant": "self", "audit": 0.0}
    entries = [(1, 0.005, "first"), (2, 0.005, "other seed"), (1, 0.02, "other round"), (1, 0.005, "again")]
    file.write_text("".join(json.dumps({**common, "seed": s, "round": r, "word": w}) + "\n" for s, r, w in entries))
    run = report_prior.settings([str(file), *["nss", "self", "mnist-lenet5", "seeds=1:2"]], True)
    assert [line["word"] for line in store_prior.lines_of(file, [run])] == ["again"]


def test_two_versions_are_compared_on_the_pools_they_share(capsys: pytest.CaptureFixture[str]) -> None:
    """Gains of 10 and 20 become 13 and 21; a pool that only one of them has is left out."""

    def line(seed: int, rate: float) -> prior_tables.Line:
        common = {"subject": "a", "kind": "nss", "variant": "self", "round": 0.005, "audit": 0.0}
        return {**common, "seed": seed, "rates": [rate], "deepgini": [50.0]}

    prior_tables.compared([line(1, 60), line(2, 70), line(3, 90)], [line(1, 63), line(2, 71)])
    rows = [row.split(" | ")[3:5] for row in capsys.readouterr().out.splitlines()[2:]]
    assert [(word, cell.split()[0]) for word, cell in rows] == [("before", "+15.0"), ("after", "+17.0"), ("difference", "+2.0")]
