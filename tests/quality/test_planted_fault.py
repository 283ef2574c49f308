"""A planted fault region: guides that claim to help must enter it soon, and sooner than random."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.quality.planted import DESIGN, GUIDES, MOST, REPORT, arrives, measure

from neurotest.generate.fuzz import build_guide
from neurotest_lab.studies.fuzzing import cells

RESULT = Path(__file__).resolve().parents[2] / "docs" / "results" / "fuzzing-guides.json"
WITHIN = {"tensorfuzz:0.004": 1500}  # forward passes in which guides that help arrive
SEEDS = (1000, 1001)  # of this test alone


def listed() -> dict[str, bool]:
    """What the documentation says of each guide: whether it helps."""
    rows = json.loads(RESULT.read_text())["rows"]
    return {row[0].strip("`"): row[-1] == "yes" for row in rows if row[0].startswith("`")}


def test_every_guide_is_listed_as_helping_or_not() -> None:
    guides = listed()
    assert set(guides) == set(GUIDES)
    assert {guide for guide, helps in guides.items() if helps} == set(WITHIN)
    names = {guide.partition(":")[0] for guide in guides}
    assert set(cells.GUIDES) - names == {"cac"}  # needs a convolution


@pytest.mark.parametrize(("guide", "within"), WITHIN.items())
def test_guides_that_help_arrive_within_their_limit_and_sooner_than_random(guide: str, within: int) -> None:
    taken = [arrives(guide, seed) for seed in SEEDS]
    random = [arrives("random", seed, str(build_guide(guide).defaults["priority"])) for seed in SEEDS]
    assert max(taken) <= within
    assert np.mean(taken) < np.mean(random)


def test_random_does_not_help_itself() -> None:
    """The measure says nothing where there is nothing: random beside random is a tie."""
    (row,) = measure(["random"], seeds=(3, 4))
    assert row["sooner than random"] == 0.5
    assert not row["helps"]
    assert row["most"] <= MOST + 64


def test_settings_were_not_chosen_on_what_is_reported() -> None:
    assert not set(DESIGN) & set(REPORT)
    assert not set(SEEDS) & {*DESIGN, *REPORT}
