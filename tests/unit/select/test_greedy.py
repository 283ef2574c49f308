"""CTM and CAM: by hand, against plain loops, and what is refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.refusals import refused
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.select import compare, select
from neurotest.select.api import rank
from neurotest.select.greedy import CAM, CTM, _additional, _Covers
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def covers(profile: np.ndarray) -> _Covers:
    rows, ids = np.nonzero(profile)
    return _Covers.joined(np.arange(len(profile)), np.bincount(rows, minlength=len(profile)), ids.astype(np.int32))


def plain_cam(profile: np.ndarray) -> list[int]:
    """Straight from the definition: look at everything, every time."""
    left, covered, order = list(range(len(profile))), np.zeros(profile.shape[1], dtype=bool), []
    while left:
        gains = [int((profile[i] & ~covered).sum()) for i in left]
        if max(gains) == 0:
            break
        best = left[gains.index(max(gains))]
        order.append(best)
        covered |= profile[best]
        left.remove(best)
    return order + sorted(left, key=lambda i: (-int(profile[i].sum()), i))


HAND = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]], dtype=bool)


def test_by_hand() -> None:
    assert _additional(covers(HAND)).tolist() == [0, 3, 1, 0, 0]
    assert CTM().order_by(covers(HAND)).tolist() == [2, 3, 2, 0, 2]
    scores = CAM().order_by(covers(HAND))
    assert scores.tolist() == [0.5, 3, 1, 0, 0.5]
    assert rank(scores).tolist() == [1, 2, 0, 4, 3]


@settings(max_examples=60, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 10)), elements=st.booleans()))
def test_cam_is_what_plain_loops_give(profile: np.ndarray) -> None:
    assert rank(CAM().order_by(covers(profile))).tolist() == plain_cam(profile)


@settings(max_examples=30, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 10)), elements=st.booleans()))
def test_what_is_added_adds_up_to_what_is_covered_and_falls(profile: np.ndarray) -> None:
    added = _additional(covers(profile))
    assert added.sum() == profile.any(axis=0).sum()
    assert (np.diff(added[rank(added.astype(float))]) <= 0).all()


def test_batches_in_any_order_are_put_in_order() -> None:
    order = np.array([3, 0, 4, 1, 2])
    rows, ids = np.nonzero(HAND[order])
    joined = _Covers.joined(order, np.bincount(rows, minlength=5), ids.astype(np.int32))
    straight = covers(HAND)
    assert np.array_equal(joined.starts, straight.starts)
    assert np.array_equal(joined.ids, straight.ids)


def test_memory_of_cam_on_kmnc() -> None:
    """2,000 tests of 236 neurons in 1,000 sections each: 20 MB are allowed, dense profiles take 472."""
    values = np.random.default_rng(0).integers(0, 1000, (2000, 236)) + 1000 * np.arange(236)
    import scipy.sparse  # noqa: F401 - not part of what is measured

    tracemalloc.start()
    added = _additional(_Covers(np.arange(2001) * 236, values.astype(np.int32).ravel()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert added.sum() == len(np.unique(values))
    assert peak < 20e6


# -- through the network


def target() -> Target:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 3)]
    return Target(nn.Sequential(*layers).eval(), shape=(1, 6, 6))


def images(n: int, seed: int) -> ArraySource:
    random = np.random.default_rng(seed)
    return ArraySource(random.random((n, 1, 6, 6), dtype=np.float32), random.integers(0, 3, n))


CRITERIA = ["nac", "nc:0.5", "kmnc:10", "nbc", "snac:0", "tknc:2", "bknc:1", "npc", "lsc", "dsc:0.05", "mdsc"]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_serves_both(criterion: str) -> None:
    """The first picks of CAM cover what the whole pool covers; CTM and CAM agree on the first."""
    selections = compare(target(), images(40, 1), [f"cam:{criterion}", f"ctm:{criterion}"], 5, train=images(60, 2))
    cam, ctm = selections.values()
    assert sorted(cam.order) == list(range(40))
    added = cam.all_scores[cam.all_scores >= 1]
    if len(added):
        assert cam.order[0] == ctm.order[0]
        assert added.max() == ctm.all_scores.max()


def test_the_picks_of_cam_cover_what_the_pool_covers() -> None:
    from neurotest.coverage import cover

    pool, train = images(60, 1), images(60, 2)
    cam = select(target(), pool, "cam:kmnc:20", 5, train=train)
    picks = cam.order[: int((cam.all_scores >= 1).sum())]
    here, whole = (
        cover(target(), part, "kmnc:20", train=train, cache=False)["kmnc:20"].value for part in (pool.take(picks), pool)
    )
    assert here.covered == whole.covered == cam.all_scores[picks].sum()


def test_options_of_the_criterion() -> None:
    selection = select(target(), images(30, 1), "cam:criterion=kmnc:sections=7;edges=dnn_tip", 5, train=images(30, 2))
    assert "sections=7" in selection.canonical
    assert "dnn_tip" in selection.canonical


def test_layers_can_be_overridden() -> None:
    whole, part = (select(target(), images(30, 1), "ctm:nac", 5, **more) for more in ({}, {"layers": "0", "neuron": "unit"}))
    assert "neuron='unit'" in part.canonical
    assert part.all_scores.max() > whole.all_scores.max()


def test_ctm_says_where_it_says_nothing() -> None:
    (note,) = select(target(), images(20, 1), "ctm:tknc:1", 5).notes
    assert "every candidate covers as much" in note


@pytest.mark.parametrize(
    ("method", "refusal"),
    [
        ("cam:nlc", ("unsuitable", "criterion")),
        ("cam:kmmc", ("unknown-name", "criterion")),
        ("cam:kmnc:0", ("out-of-range", "sections")),
    ],
)
def test_bad_criteria(method: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(), images(20, 1), method, 5, train=images(20, 2))


@pytest.mark.parametrize("method", ["cam:kmnc", "ctm:nbc", "cam:npc", "cam:dsc", "dsa", "lsa", "mdsa", "mlsa"])
def test_training_data_is_asked_for(method: str) -> None:
    with refused("missing", "train"):
        select(target(), images(20, 1), method, 5)
