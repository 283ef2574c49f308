"""A campaign says what share of its faults it believes to be valid, with an interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from neurotest.campaign import fuzz, status
from neurotest.campaign.believed import Believed, sentence, valid_share
from neurotest.errors import Interrupted
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.jobs.opening import open_data
from neurotest.mutate.rules import Rules95
from neurotest.report.section import write_report
from neurotest.target import Target
from neurotest.target.load import load


def counts(*rows: tuple[int, int, int, int], times: int = 1) -> Any:
    return np.array(rows * times, dtype=float)


def test_by_hand() -> None:
    """Ten classes: of valid mutants 90 % are recognised, of ruins 10 %; 50 % of the faults lie halfway between."""
    share = valid_share(counts((10, 5, 10, 9), times=40), luck=0.1, on_seeds=1.0)
    assert share is not None
    assert share.value == pytest.approx(0.5)
    assert share.low <= 0.5 <= share.high
    all_valid = valid_share(counts((10, 9, 10, 9), times=40), 0.1, 1.0)
    none_valid = valid_share(counts((10, 1, 10, 9), times=40), 0.1, 1.0)
    assert (all_valid and all_valid.value) == pytest.approx(1.0)
    assert (none_valid and none_valid.value) == pytest.approx(0.0)


def test_few_other_mutants_leave_it_to_the_seeds() -> None:
    share = valid_share(counts((10, 5, 1, 0)), luck=0.1, on_seeds=0.9)
    assert (share and share.value) == pytest.approx(0.5)


def test_a_judge_that_knows_nothing_tells_nothing() -> None:
    assert valid_share(counts((10, 2, 10, 2), times=9), luck=0.1, on_seeds=0.2) is None
    assert valid_share(counts((0, 0, 10, 9)), 0.1, 0.9) is None
    assert sentence(None) == ""
    valid = {"share": None, "interval": None, "by": "learner"}
    assert "cannot be told" in sentence(valid)
    assert "--judge" in sentence(valid)


def test_the_interval_follows_the_seeds() -> None:
    """Seeds of which all faults are valid or none are worth one fault each, not ten."""
    alike = valid_share(counts((10, 5, 10, 9), times=40), 0.1, 1.0)
    apart = valid_share(counts((10, 9, 10, 9), (10, 1, 10, 9), times=20), 0.1, 1.0)
    assert alike is not None
    assert apart is not None
    assert apart.value == pytest.approx(alike.value)
    assert apart.high - apart.low > 0.2 > alike.high - alike.low


def test_shares_that_are_known_are_found() -> None:
    """Drawn: a third of the faults are ruins, the judge recognises 80 % of valid images and a tenth of ruins."""
    random, inside = np.random.default_rng(0), 0
    for _ in range(100):
        valid = random.random((60, 8)) < 2 / 3
        right = random.random((60, 8)) < np.where(valid, 0.8, 0.1)
        others = random.random((60, 8)) < 0.8
        rows = np.column_stack([np.full(60, 8), right.sum(1), np.full(60, 8), others.sum(1)]).astype(float)
        share = valid_share(rows, 0.1, 0.8)
        assert share is not None
        inside += share.low <= 2 / 3 <= share.high
    assert inside >= 88


def test_every_place_shows_it_and_a_resumed_campaign_has_the_same(target: Target, model: str, seeds: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "guide": "nlc",
        "batch": 64,
        "tries": 16,
        "judge": load(model.replace("build", "other"), size="1x8x8"),
    }
    whole = fuzz(target, seeds, iterations=60, out=tmp_path / "whole", **settings)
    believed = whole.to_dict()["believed_valid"]
    assert believed["judged"] == whole.faults
    assert believed["by"].endswith(":other")
    assert status(tmp_path / "whole")["believed_valid"] == believed
    assert sentence(believed) in write_report(tmp_path / "whole").read_text().replace("&#39;", "'")
    assert sentence(believed) in whole.headline()
    stops = iter([False] * 3 + [True])
    with pytest.raises(Interrupted):
        fuzz(target, seeds, iterations=60, out=tmp_path / "parts", stop=lambda: next(stops), **settings)
    parts = fuzz(resume=tmp_path / "parts", target=target, judge=settings["judge"])
    assert parts.to_dict()["believed_valid"] == believed


def test_the_learner_is_the_default(target: Target, seeds: str) -> None:
    result = fuzz(target, seeds, "random", iterations=20, batch=64, out=False)
    believed = result.to_dict()["believed_valid"]
    assert believed["by"] == "learner"
    assert believed["judged"] == result.faults


def test_a_judge_must_be_another_network_of_that_size(target: Target, model: str, seeds: str, tmp_path: Path) -> None:
    chosen = choose_seeds(target, open_data(target, seeds))
    with refused("conflict", "judge"):
        Believed.of(chosen, target, target, Rules95())
    with refused("unsuitable", "judge"):
        Believed.of(chosen, load("zoo:mnist-lenet1"), target, Rules95())


def test_the_learner_waits_for_the_first_output(target: Target, seeds: str) -> None:
    """Fitting costs a second or two, which a campaign without outputs never spends."""
    believed = Believed.of(choose_seeds(target, open_data(target, seeds)), None, target, Rules95())
    assert believed is not None
    believed.add([])
    assert believed.summary() is None
    assert not {"recognition", "on_seeds"} & vars(believed).keys()
    assert 0 < believed.on_seeds <= 1
    assert "recognition" in vars(believed)
