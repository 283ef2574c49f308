"""How a campaign went, in forward passes: by hand, and on a campaign whose ends its summary knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.unit.report.subjects import inputs, network

import neurotest
from neurotest import Run
from neurotest.campaign import course
from neurotest.campaign.merge import merge
from neurotest.campaign.store import Store


def test_curves_by_hand() -> None:
    firsts = {(0, (1, 2, "a")): 30, (1, (1, 2, "a")): 10, (1, (1, 3, "a")): 30, (2, (4, 5, "b")): 50}
    families, seeds = course.new_families(firsts), course.new_seeds(firsts)
    assert (families.forwards.tolist(), families.counts.tolist()) == ([10, 30, 50], [1, 2, 3])
    assert (seeds.forwards.tolist(), seeds.counts.tolist()) == ([10, 30, 50], [1, 2, 3])
    assert course.new_families({}).counts.tolist() == []


def test_curves_end_at_the_counts_of_the_campaign(tmp_path: Path) -> None:
    result = neurotest.fuzz(network(), inputs(), "nlc", iterations=60, batch=16, tries=8, out=tmp_path / "one")
    summary = result.to_dict()
    with Run.open(tmp_path / "one") as run:
        own, control = Store(run).firsts()
        assert own is not None
        assert control is not None
        for firsts, counts in ((own, summary), (control, summary["random"])):
            assert course.new_families(firsts).counts[-1] == counts["families"]
            assert course.new_seeds(firsts).counts[-1] == counts["roots"]
            assert course.new_families(firsts).forwards[-1] <= counts["forwards"]
        faults = course.faults(run, own)
        assert faults.counts[-1] == summary["faults"]
        assert (np.diff(faults.forwards) >= 0).all()
        assert faults.forwards[-1] <= summary["forwards"]
        families = course.new_families(own)
        at = np.searchsorted(faults.forwards, families.forwards[0], side="right") - 1
        assert at >= 0  # no family without a fault by then


def test_merged_campaigns_have_no_common_course(tmp_path: Path) -> None:
    for name in ("a", "b"):
        neurotest.fuzz(network(), inputs(seed=ord(name)), "random", iterations=20, batch=16, tries=8, out=tmp_path / name)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    with Run.open(tmp_path / "both") as run:
        assert Store(run).firsts() == (None, None)
