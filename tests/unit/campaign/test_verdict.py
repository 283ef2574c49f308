"""Whoever finds more kinds wins, not whoever finds more faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neurotest.campaign import FuzzResult, fuzz
from neurotest.campaign.verdict import compare, sentence
from neurotest.errors import Interrupted
from neurotest.generate.fuzz.mutants import Key, Tally
from neurotest.report.section import write_report
from neurotest.target import Target


def tally(found: dict[tuple[int, Key], int], forwards: int = 1000, faults: int = 0) -> Tally:
    one = Tally(forwards=forwards, faults=faults or len(found), first=found)
    one.families.update(family for _, family in found)
    one.roots = {root for root, _ in found}
    return one


def many(families: int, seeds: int = 100) -> dict[tuple[int, Key], int]:
    """Each family from one seed; every seed has a fault."""
    return {(i % seeds, (i // 50, 50 + i % 50, "blur")): i for i in range(max(families, seeds)) if i < families} | {
        (seed, (0, 50, "blur")): 900 for seed in range(seeds)
    }


def test_more_faults_in_fewer_families_is_no_victory() -> None:
    verdict = compare(tally(many(194), faults=3898), tally(many(285), faults=3155))
    assert verdict is not None
    assert verdict["families"] == {**verdict["families"], "guide": 194, "random": 285, "difference": -91, "more": "random"}
    assert verdict["seeds"]["more"] is None
    text = sentence(verdict, (3898, 3155))
    assert "random finds more families (194 against random's 285" in text
    assert "no difference beyond chance in seeds broken (100 against random's 100" in text
    assert text.endswith("faults, of whatever kind: 3,898 against 3,155")
    assert "the guide finds more" not in text


def test_at_equal_forward_passes() -> None:
    """A guide that made twice the passes is compared up to where random stopped."""
    found = {(i, (0, i, "blur")): 10 * i for i in range(100)}
    verdict = compare(tally(found, forwards=1000), tally({k: n for k, n in found.items() if n <= 500}, forwards=500))
    assert verdict is not None
    assert verdict["forwards"] == 500
    assert verdict["families"]["difference"] == 0
    assert verdict["pairs"]["guide"] == 51


def test_no_verdict_on_oneself_or_without_what_was_found() -> None:
    one = tally(many(20))
    assert compare(one, one) is None
    old = tally(many(20))
    old.first = None
    assert compare(one, old) is None
    assert sentence(None) == ""


def test_a_campaign_says_who_found_what_and_keeps_it_over_a_resume(target: Target, seeds: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"guide": "nlc", "batch": 64, "tries": 16}
    whole = fuzz(target, seeds, iterations=90, out=tmp_path / "whole", **settings)
    stops = iter([False] * 4 + [True])
    with pytest.raises(Interrupted):
        fuzz(target, seeds, iterations=90, out=tmp_path / "parts", stop=lambda: next(stops), **settings)
    parts = fuzz(resume=tmp_path / "parts", target=target)
    assert whole.verdict is not None
    assert whole.verdict == parts.verdict == parts.to_dict()["verdict"]
    assert whole.verdict["families"]["guide"] == len(whole.families)
    assert whole.verdict["seeds"]["random"] == len(whole.control.roots if whole.control else ())
    assert "forward passes each" in whole.headline()
    assert sentence(whole.verdict) in write_report(tmp_path / "whole").read_text().replace("&#39;", "'")


@pytest.mark.parametrize("guide", ["random"])
def test_random_alone_has_no_verdict(target: Target, seeds: str, guide: str) -> None:
    result: FuzzResult = fuzz(target, seeds, guide, iterations=20, batch=64, out=False)
    assert result.verdict is None
    assert result.to_dict()["verdict"] is None
