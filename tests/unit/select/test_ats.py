"""ATS: geometry by hand, the greedy order against plain loops, and classes that are empty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.select import select
from neurotest.select.ats import ATS, UNITS, _greedy, _intervals, _Line, _published_greedy
from neurotest.target import Target, Trace

pytestmark = pytest.mark.by_hand


def test_an_interval_by_hand() -> None:
    """p = (.5, .3, .2) sums to 1, so it lies on the plane: the ray from class 0 meets the edge at .3 / .5 = .6."""
    low, high = _intervals(np.array([[0.5, 0.3, 0.2]]), 0)
    reach = 0.005 * (0.99 - 0.5)
    assert low.tolist() == [[round((0.6 - reach) * UNITS)]]
    assert high.tolist() == [[round((0.6 + reach) * UNITS)]]
    low, high = _intervals(np.array([[0.5, 0.3, 0.2]]), 0, projection="published")
    assert (low + high).tolist() == [[80_000]]  # the third coordinate was written over the second: .2 / .5
    low, high = _intervals(np.array([[0.5, 0.3, 0.2]]), 0, radius="log")
    assert (high - low)[0, 0] == pytest.approx(2 * 0.01 * np.log1p(0.49) * UNITS, abs=1)


def test_edges_are_clipped() -> None:
    low, high = _intervals(np.array([[0.6, 0.0, 0.4], [0.6, 0.4, 0.0]]), 0)
    assert low.tolist() == [[0], [UNITS - 195]]
    assert high.tolist() == [[195], [UNITS]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), min_size=1, max_size=12))
def test_a_line_knows_what_is_covered(added: list[tuple[int, int]]) -> None:
    line, plain = _Line(), np.zeros(100, dtype=bool)
    for at, length in added:
        low, high = np.array([at]), np.array([at + length])
        assert line.covered(low, high) == plain[at : at + length].sum()
        line.add(low, high)
        plain[at : at + length] = True
    assert (line.high - line.low).sum() == plain.sum()


def plain_greedy(low: np.ndarray, high: np.ndarray, threshold: int) -> tuple[list[int], list[int]]:
    """Cells instead of intervals, every gain anew each time."""
    cells = np.zeros((low.shape[1], UNITS), dtype=bool)
    left, picked, added = list(range(len(low))), [], []
    while left:
        gains = [sum(int((~cells[k, low[i, k] : high[i, k]]).sum()) for k in range(low.shape[1])) for i in left]
        if max(gains) <= threshold:
            break
        best = left.pop(gains.index(max(gains)))
        picked.append(best)
        added.append(max(gains))
        for k in range(low.shape[1]):
            cells[k, low[best, k] : high[best, k]] = True
    return picked, added


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0, 100, 600])
def test_the_order_is_what_plain_loops_give(seed: int, threshold: int) -> None:
    probs = np.random.default_rng(seed).dirichlet([0.4] * 5, 40)
    low, high = _intervals(probs[probs.argmax(axis=1) == 0], 0)
    patterns = _greedy(low, high, threshold)
    assert (patterns.picked, patterns.added) == plain_greedy(low, high, threshold)
    assert sorted(patterns.picked + patterns.rest) == list(range(len(low)))
    assert patterns.lengths == sorted(patterns.lengths, reverse=True)
    assert patterns.union >= sum(patterns.added)


@pytest.mark.parametrize("seed", range(3))
def test_the_published_books_pick_the_same(seed: int) -> None:
    """Where no gains are equal; what is set aside is the same, in another order."""
    probs = np.random.default_rng(seed).dirichlet([0.4] * 5, 60)
    low, high = _intervals(probs[probs.argmax(axis=1) == 0], 0)
    sound, published = _greedy(low, high, 100), _published_greedy(low, high, 100)
    assert (sound.picked, sound.added, sound.union) == (published.picked, published.added, published.union)
    assert set(sound.rest) == set(published.rest)


class Table(nn.Module):
    """Answers with the logarithm of what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp_min(1e-12).log()


def target(classes: int) -> Target:
    return Target(Table().eval(), shape=(classes,))


def pool(probs: np.ndarray) -> ArraySource:
    return ArraySource(probs.astype(np.float32))


def test_sure_ones_come_last_and_differ_by_seed() -> None:
    probs = np.concatenate([np.random.default_rng(0).dirichlet([1.0] * 4, 20), np.repeat(np.eye(4), 5, axis=0)])
    orders = [select(target(4), pool(probs), "ats", 5, seed=seed).order for seed in (0, 1)]
    assert set(orders[0][20:]) == set(range(20, 40))
    assert np.array_equal(orders[0][:20], orders[1][:20])
    assert not np.array_equal(orders[0], orders[1])


@pytest.mark.parametrize("kind", ["empty class", "class of sure ones", "only sure ones", "on the edge", "one input"])
def test_classes_without_unsure_inputs_do_no_harm(kind: str) -> None:
    """The published code ends in an IndexError on all of them."""
    probs = np.random.default_rng(0).dirichlet([0.5] * 4, 30)
    if kind == "empty class":
        probs = probs[probs.argmax(axis=1) != 2]
    elif kind == "class of sure ones":
        probs[probs.argmax(axis=1) == 2] = np.eye(4)[2]
    elif kind == "only sure ones":
        probs = np.eye(4)[probs.argmax(axis=1)]
    elif kind == "on the edge":
        probs[3] = [0.99, 0.01, 0, 0]
    else:
        probs = probs[:1]
    for method in ("ats", "ats:preset=code", "ats:threshold=0"):
        selection = select(target(4), pool(probs), method, 1)
        assert sorted(selection.order) == list(range(len(probs)))


@pytest.mark.parametrize("classes", [2, 121])
def test_too_few_or_too_many_classes(classes: int) -> None:
    with refused("unsuitable", "classes"):
        select(target(classes), pool(np.random.default_rng(0).dirichlet([1.0] * classes, 5)), "ats", 1)


def test_scan_order_does_not_matter() -> None:
    probs = np.random.default_rng(0).dirichlet([0.5] * 4, 30)
    logits = torch.from_numpy(np.log(probs))
    values = []
    for order in (np.arange(30), np.random.default_rng(1).permutation(30)):
        state = ATS().start(_Pool(30))  # type: ignore[arg-type]
        for part in np.array_split(order, 4):
            state.update(part, Trace(logits[part]), ())
        values.append(state.value())
    assert np.array_equal(*values)


class _Pool:
    seed = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n


@pytest.mark.parametrize(
    ("method", "refusal"),
    [("ats:threshold=-1", ("out-of-range", "threshold")), ("ats:projection=none", ("wrong-type", "projection"))],
)
def test_bad_settings(method: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(4), pool(np.eye(4)), method, 1)
