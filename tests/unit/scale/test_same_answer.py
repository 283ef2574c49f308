"""The same answer by one worker, by two processes and by two workers of a Ray."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurotest
from neurotest.campaign.store import Store
from neurotest.data.source import ArraySource
from neurotest.executor import Executor, _current
from neurotest.measure.answers import answers
from neurotest.pieces import PIECE_BATCHES, pieces
from neurotest.select.api import compare
from neurotest.semantics.exemplars import Exemplars

POOL, TRAIN = "zoo:mnist/test[:1300]", "zoo:mnist/train[:500]"
CRITERIA = ["nc", "nac", "kmnc:100", "nbc", "snac", "tknc", "tknp", "nlc", "nlc:gated", "cc", "lsc", "dsc", "cac", "npc"]
METHODS = [
    "deepgini", "margin", "random", "nss", "nss+", "lsa", "dsa", "mdsa", "mlsa", "nearest", "cam:nac", "ctm:kmnc:100", "cam:dsc",
    "ats", "ces",
]  # fmt: skip


@contextmanager
def by(executor: Executor) -> Iterator[None]:
    """Like `using`, for workers that live on."""
    token = _current.set(executor)
    try:
        yield
    finally:
        _current.reset(token)


@pytest.fixture(scope="module")
def covered() -> dict[str, object]:
    return neurotest.cover("zoo:mnist-lenet1", POOL, CRITERIA, train=TRAIN, by="class", cache=False, batch=100).to_dict()


def test_coverage_is_the_same_to_the_last_bit(parallel: Executor, covered: dict[str, object]) -> None:
    """Values, growth, classes, layers, never-covered neurons: of sets, of sums, and of what depends on the order."""
    with by(parallel):
        result = neurotest.cover("zoo:mnist-lenet1", POOL, CRITERIA, train=TRAIN, by="class", cache=False, batch=100)
    assert not result.errors
    assert result.to_dict() == covered


@pytest.fixture(scope="module")
def ranked() -> dict[str, neurotest.Selection]:
    return compare("zoo:mnist-lenet1", POOL, METHODS, train=TRAIN, batch=100)


def test_rankings_are_the_same_to_the_last_bit(parallel: Executor, ranked: dict[str, neurotest.Selection]) -> None:
    with by(parallel):
        result = compare("zoo:mnist-lenet1", POOL, METHODS, train=TRAIN, batch=100)
    assert not result.errors
    for name, selection in ranked.items():
        assert np.array_equal(result[name].all_scores, selection.all_scores), name
        assert result[name].to_dict() == selection.to_dict(), name


def test_a_method_that_fails_in_a_worker_drops_out_with_its_reason(parallel: Executor) -> None:
    alone = neurotest.cover("zoo:mnist-lenet1", POOL, ["nc", "mdsc"], train="zoo:mnist/train[:2]", cache=False)
    with by(parallel):
        result = neurotest.cover("zoo:mnist-lenet1", POOL, ["nc", "mdsc"], train="zoo:mnist/train[:2]", cache=False)
    assert result.to_dict() == alone.to_dict()


def test_a_pool_with_originals_in_memory(parallel: Executor) -> None:
    def ranking() -> np.ndarray:
        return compare("zoo:fashion-lenet1", "zoo:fashion-mnist/nss-pool@0", ["nss"], limit=1200, batch=100)["nss"].order

    alone = ranking()
    with by(parallel):
        assert np.array_equal(ranking(), alone)


@given(st.integers(1, 5000), st.integers(1, 700), st.integers(1, 9))
def test_pieces_are_whole_batches_and_cover_everything_once(n: int, batch: int, per: int) -> None:
    source = ArraySource(np.zeros((n, 1, 1, 1), np.uint8))
    parts = list(pieces(source, batch, per=per))
    assert np.concatenate([part.index for part in parts]).tolist() == list(range(n))
    assert [part.start for part in parts] == list(range(0, n, batch * per))
    assert all(len(part.source) == len(part.index) == batch * per for part in parts[:-1])


def test_pieces_follow_an_order() -> None:
    source = ArraySource(np.arange(9, dtype=np.uint8).reshape(9, 1, 1, 1))
    order = np.array([8, 0, 7, 1, 6])
    parts = list(pieces(source, 1, order=order, per=2))
    assert [part.source.read(np.arange(len(part.source))).ravel().tolist() for part in parts] == [[8, 0], [7, 1], [6]]
    assert PIECE_BATCHES >= 1


def test_a_swarm_finds_the_same_faults(parallel: Executor, tmp_path: Path) -> None:
    def faults(place: Path) -> list[tuple[int, int, str, int]]:
        neurotest.swarm(
            "zoo:mnist-lenet1",
            "zoo:mnist/test[:60]",
            radius=0.15,
            particles=4,
            iterations=3,
            batch=40,
            out=place,
            beside=("noise",),
        )
        with neurotest.Run.open(place) as run:
            stored = Store(run).faults()
            return [(fault.number, fault.root, fault.content, fault.predicted) for fault in stored]

    alone = faults(tmp_path / "alone")
    assert len(alone) > 3
    with by(parallel):
        assert faults(tmp_path / "shared") == alone
    one, other = (neurotest.Run.open(tmp_path / name) for name in ("alone", "shared"))
    with one, other:
        assert one["swarm"] == other["swarm"]


def test_profiles_exemplars_and_answers_are_the_same(parallel: Executor) -> None:
    target = neurotest.load("zoo:mnist-lenet1")
    source = neurotest.data("zoo:mnist/test[:1100]")

    def gathered() -> dict[str, np.ndarray]:
        layers = tuple(target.survey().find("pre_activation"))
        exemplars = Exemplars(layers, k=5, samples=64, labels=source.labels, classes=10)
        neurotest.scan(target, source, [exemplars], batch=100)
        ranges = neurotest.profile(target, source, batch=100)
        moments = {f"{name} {key}": value for name, one in ranges.layers.items() for key, value in one.state_dict().items()}
        answered = answers(target, source, batch=100)
        return {**exemplars.state_dict(), **moments, "logits": answered.logits, "features": answered.features}

    alone = gathered()
    with by(parallel):
        shared = gathered()
    assert alone.keys() == shared.keys()
    for name, values in alone.items():
        assert np.array_equal(values, shared[name]), name


GUIDES = ["goals", "goals:coverage=kmnc:10", "kmnc:20", "nlc", "cc", "random", "tensorfuzz:0.01", "activation"]
Campaign = tuple[list[tuple[object, ...]], dict[str, Any]]


def campaign(guide: str, place: Path) -> Campaign:
    """What a small campaign of four islands stores, and its counters."""
    neurotest.fuzz(
        "zoo:mnist-lenet1", "zoo:mnist/test[:24]", guide, train="zoo:mnist/train[:100]", islands=4, forwards=500, batch=32,
        out=place,
    )  # fmt: skip
    with neurotest.Run.open(place) as run:
        rows = [(m.number, m.batch, m.root, m.content, m.predicted, m.oracle, m.accepted, m.gain) for m in Store(run).mutants()]
        counters = run["progress"]
        for part in (counters, counters["control"] or {}):
            part.pop("seconds", None)
        return rows, {"progress": counters, "believed": run["believed valid"], "coverage": run["summary"]["coverage"]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Campaign]:
    """What one worker gives, once for all who compare with it."""
    folder = tmp_path_factory.mktemp("campaigns")
    return functools.cache(lambda guide: campaign(guide, folder / str(GUIDES.index(guide))))


@pytest.mark.parametrize("guide", GUIDES)
def test_a_campaign_in_islands_is_the_same_to_the_last_bit(
    parallel: Executor, guide: str, tmp_path: Path, alone: Callable[[str], Campaign]
) -> None:
    """Faults, families, tallies, the control, the guide's own measure: whoever does the legs."""
    with by(parallel):
        rows, counters = campaign(guide, tmp_path / "shared")
    assert (rows, counters) == alone(guide)
    contents = [row[3] for row in rows]
    assert len(rows) > 20
    assert len(set(contents)) == len(contents)  # no content twice, whichever island made it
    assert counters["progress"]["forwards"] == pytest.approx(500, abs=60)
