"""Numbers and options are refused with the name, the value, what is allowed and what is usual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest
from tests.refusals import refused

from neurotest import checks
from neurotest.checks import choices, count, eps_share, fraction, integer, number, one_of, setting
from neurotest.errors import BadInput


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (lambda: integer("sections", 0, 1, "papers use 1000"), "sections=0: expected an integer >= 1 (papers use 1000)."),
        (lambda: integer("k", True, 1, "10"), "k=True: expected an integer >= 1 (10)."),
        (lambda: integer("k", 2.0, 1, "10"), "k=2.0: expected an integer >= 1 (10)."),
        (lambda: integer("k", 9, 1, "3", most=8), "k=9: expected an integer from 1 to 8 (3)."),
        (lambda: count("steps", 0, "10"), "steps=0: expected an integer >= 1 (10)."),
        (lambda: number("p", 1, "0.05", above=0, below=1), "p=1: expected a number above 0 and below 1 (0.05)."),
        (lambda: number("p", 0, "0.05", above=0, below=1), "p=0: expected a number above 0 and below 1 (0.05)."),
        (lambda: number("scale", -0.5, "0", least=0), "scale=-0.5: expected a number >= 0 (0)."),
        (lambda: number("share", 1.5, "0.7", above=0, most=1), "share=1.5: expected a number above 0 and at most 1 (0.7)."),
        (lambda: number("offset", float("nan"), "1"), "offset=nan: expected a number (1)."),
        (lambda: number("offset", "1", "1"), "offset='1': expected a number (1)."),
        (lambda: number("offset", False, "1"), "offset=False: expected a number (1)."),
        (lambda: fraction("gamma", "3/0", 0, 1, "0.1"), "gamma='3/0': expected a number from 0 to 1 (0.1)."),
        (lambda: eps_share("eps", 8), "eps=8: expected a number from 0 to 1 (a share"),
        (lambda: one_of("mode", "c", ("a", "b")), "mode='c': expected a or b."),
    ],
)
def test_a_refusal_says_what_is_allowed(check: Callable[[], object], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        check()
    assert str(refused.value).startswith(sentence)


@dataclass(frozen=True, kw_only=True)
class Settings:
    mode: Literal["a", "b"] = "a"
    width: Literal["scott"] | float = "scott"  # not words alone: for the class itself to check
    layers: str = "any"

    def __post_init__(self) -> None:
        choices(self)


@dataclass(frozen=True, kw_only=True)
class More(Settings):
    edges: Literal["closed", "open", "ceil"] = "closed"


def test_words_of_a_literal_are_the_allowed_ones() -> None:
    assert More(mode="b", width=0.2, layers="x", edges="ceil").mode == "b"
    with refused("out-of-range", "mode"):
        More(mode="c")
    with refused("out-of-range", "edges"):
        More(edges=1)


def test_limits_that_may_be_reached_are_taken() -> None:
    assert (integer("k", 8, 1, "", most=8), count("k", 1, "")) == (8, 1)
    assert [number("x", x, "", least=0, most=1) for x in (0, 0.5, 1)] == [0.0, 0.5, 1.0]
    assert fraction("eps", "8/255", 0, 1, "") == 8 / 255
    assert fraction("kappa", "40", 0, None, "") == 40.0


@dataclass(frozen=True, kw_only=True)
class Declared(checks.Settings):
    steps: int = setting(5, "5 is usual")
    side: int | None = setting(None, "10, or none", least=0, most=20)
    rate: float = setting(0.5, "0.5 is usual", above=0, below=1)
    eps: float = setting(0.1, read=eps_share)
    step: float = setting(0.1, "0.1 is usual", read=eps_share, above=0)
    free: float = -1.0
    mode: Literal["a", "b"] = "a"


def test_settings_declare_their_limits_beside_their_defaults() -> None:
    assert Declared() == Declared(steps=5, side=None, rate=0.5, eps=0.1, step=0.1)
    made = Declared(steps=1, side=0, rate=0.9, eps="8/255", step="1/10", free=7.0, mode="b")
    assert (made.steps, made.side, made.eps, made.step, made.free) == (1, 0, 8 / 255, 0.1, 7.0)
    assert (Declared.steps, Declared.side, Declared.rate) == (5, None, 0.5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "steps=0: expected an integer >= 1 (5 is usual)."),
        ({"steps": None}, "steps=None: expected an integer >= 1 (5 is usual)."),
        ({"side": 21}, "side=21: expected an integer from 0 to 20 (10, or none)."),
        ({"side": 1.0}, "side=1.0: expected an integer from 0 to 20 (10, or none)."),
        ({"rate": 1}, "rate=1: expected a number above 0 and below 1 (0.5 is usual)."),
        ({"step": 0}, "step=0.0: expected a number above 0 (0.1 is usual)."),
        ({"mode": "c"}, "mode='c': expected a or b."),
    ],
)
def test_settings_outside_their_limits_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Declared(**options)
    assert str(refusal.value) == sentence
    with refused("out-of-range", "eps"):
        Declared(eps=2)
