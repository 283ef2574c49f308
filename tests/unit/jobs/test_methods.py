"""Methods in a run's configuration, today's and those of the first version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from neurotest import registry
from neurotest.campaign.plan import FuzzPlan, read_guide
from neurotest.coverage.ranges import KMNC
from neurotest.errors import BadInput
from neurotest.generate.fuzz.guides import CoverageGuide, DeepHunter
from neurotest.jobs.methods import read_method, stored_method, with_options


@dataclass(frozen=True)
class Mine:
    """Not registered."""

    n: int = 1


def test_there_and_back() -> None:
    assert stored_method(KMNC(sections=10)) == "kmnc(sections=10)"
    assert read_method("criterion", "kmnc(sections=10)") == KMNC(sections=10)
    assert [stored_method(value) for value in (None, 3, "nlc", True)] == [None, 3, "nlc", True]


def test_what_no_text_can_hold_must_be_given_again() -> None:
    stored = stored_method(Mine(n=2))
    assert stored == {"object": "Mine(n=2)"}
    with pytest.raises(BadInput, match=r"Mine\(n=2\).*give it again"):
        read_method("criterion", stored)


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        ("attack", {"name": "pgd", "options": {"eps": 0.2}}, "pgd:eps=0.2"),
        ("criterion", "KMNC(layers='pre_activation', neuron='channel', sections=10)", "kmnc:10"),
        ("criterion", "kmnc:10", "kmnc:10"),
    ],
)
def test_runs_of_the_first_version(kind: str, stored: Any, expected: str) -> None:
    assert read_method(kind, stored) == registry.build(kind, expected)


@pytest.mark.parametrize("stored", [None, 7, {"name": "pgd"}, {"name": "pgd", "options": {"no": 1}}])
def test_damaged_entries(stored: Any) -> None:
    with pytest.raises(BadInput, match="start a new run"):
        read_method("attack", stored)


@pytest.mark.parametrize("stored", [None, 7])
def test_an_entry_that_is_no_method_at_all(stored: Any) -> None:
    with pytest.raises(BadInput, match="it is damaged"):
        read_method("attack", stored)


def test_options_beside_the_name() -> None:
    assert with_options("attack", "pgd", {"eps": 0.2, "steps": None}) == registry.build("attack", "pgd:eps=0.2")
    with pytest.raises(BadInput, match="no option 'epsilon'"):
        with_options("attack", "pgd", {"epsilon": 1})
    with pytest.raises(BadInput, match="expected a name"):
        with_options("attack", Mine(), {})


def test_guides_as_text_and_as_objects() -> None:
    assert read_guide("kmnc:10") == CoverageGuide(criterion=KMNC(sections=10), name="kmnc:10")
    for stored in (FuzzPlan.of({"guide": KMNC(sections=10)}).config()["guide"], repr(KMNC(sections=10))):
        guide = read_guide(stored)
        assert isinstance(guide, CoverageGuide)
        assert guide.criterion == KMNC(sections=10)
    assert read_guide(repr(DeepHunter(criterion="nbc"))) == DeepHunter(criterion="nbc")


def test_a_plan_is_its_configuration() -> None:
    given = {
        "guide": "nlc",
        "tries": 3,
        "mutations": "rules95:white=false",
        "keep": 2,
        "limit": 9,
        "control": False,
        "oracle": (),
    }
    plan = FuzzPlan.of(given)
    assert FuzzPlan.read(plan.config()) == plan
    assert FuzzPlan.read(plan.config()).mutations() == registry.build("mutation", "rules95:white=false")
