"""The selector nearest: by hand, against a plain loop and other searches, as a property, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.select import select
from neurotest.select.nearest import Nearest, _Directions
from neurotest.target import Target
from neurotest.target.load import load

pytestmark = pytest.mark.by_hand


def subject() -> tuple[Target, ArraySource, ArraySource]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)).eval()
    target = Target(module, shape=(1, 8, 8))
    x = np.random.default_rng(0).integers(0, 256, (160, 1, 8, 8)).astype(np.uint8)
    x[:, :, :4] //= (np.arange(160) % 5 + 1).astype(np.uint8)[:, None, None, None]
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        module[4].bias -= logits.mean(0)  # type: ignore[operator]  # so that every class is predicted
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    labels[100::7] = (labels[100::7] + 1) % 3  # some training inputs the network gets wrong
    return target, ArraySource(x[:60], labels[:60]), ArraySource(x[60:], labels[60:])


def test_distances_by_hand() -> None:
    points = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0], [0.0, 0.0]])
    near = _Directions(points, np.array([0, 0, 1, 2, 2]))
    queries = torch.tensor([[5.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    own, other = near.search(queries, np.array([0, 0, 1]), 1, others=True)
    half = 1 - 0.5**0.5
    # along (1, 0): that point itself; nearest of another class is the diagonal. The diagonal: both axes at 45 degrees. Silent:
    # at a right angle to everything.
    assert own.tolist() == pytest.approx([0, half, 1.0], abs=1e-6)
    assert other[:2].tolist() == pytest.approx([half, 0], abs=1e-6)
    two, _ = near.search(queries[:1], np.array([0]), 2, others=False)
    assert two.tolist() == pytest.approx([0.5], abs=1e-6)  # 0 and 90 degrees
    far, _ = near.search(queries[:1], np.array([7]), 1, others=False)
    assert far.tolist() == [2.0]  # a class nobody has


@pytest.mark.parametrize("options", ["", "usual=0.5", "usual=none", "others=false", "doubt=none", "preset=plain,k=2"])
def test_scores_by_plain_loops(options: str) -> None:
    target, pool, train = subject()
    method = registry.build("selector", f"nearest:{options}" if options else "nearest")
    assert isinstance(method, Nearest)
    result = select(target, pool, method, 60, train=train)
    module: nn.Sequential = target.module  # type: ignore[assignment]
    assert train.labels is not None

    def run(source: ArraySource) -> tuple[list[list[float]], list[int], list[list[float]]]:
        with torch.no_grad():
            x = target.prepare(source.read(np.arange(len(source))))
            maps = module[:3](x).flatten(1).double().tolist()  # the last map
            logits = module(x).double()
        return maps, logits.argmax(1).tolist(), logits.softmax(1).tolist()

    def distance(a: list[float], b: list[float]) -> float:
        lengths = [sum(v * v for v in one) ** 0.5 for one in (a, b)]
        return 1 - sum(i * j for i, j in zip(a, b, strict=True)) / (lengths[0] * lengths[1])

    points, classes, _ = run(train)
    right = [i for i in range(100) if classes[i] == train.labels[i]]
    assert len(right) < 100

    def far(values: list[float], predicted: int, rows: list[int]) -> float:
        by_class = {c: sorted(distance(values, points[i]) for i in rows if classes[i] == c) for c in set(classes)}
        near = by_class[predicted][: method.k]
        score = sum(near) / len(near)
        if method.others:
            other = min((c for c in by_class if c != predicted), key=lambda c: by_class[c][0])
            score /= (sum(by_class[other][: method.k]) / method.k) ** 0.5
        return score

    usual = sorted(far(points[i], classes[i], [j for j in right if j != i]) for i in right)
    least = 0.0 if method.usual is None else float(np.quantile(usual, method.usual))
    scores = []
    for values, predicted, probs in zip(*run(pool), strict=True):
        score = max(far(values, predicted, right), least)
        if method.doubt is not None:
            score *= 1 - sum(p * p for p in probs) + method.doubt
        scores.append(score)
    assert result.scores is not None
    order = np.asarray(result.order)
    assert np.asarray(result.scores)[: len(order)].tolist() == pytest.approx(np.array(scores)[order].tolist(), rel=1e-4, abs=1e-7)
    assert np.array(scores)[order].tolist() == pytest.approx(sorted(scores, reverse=True), rel=1e-4, abs=1e-7)


def test_the_projected_search_finds_nearly_what_the_exact_one_does() -> None:
    random = np.random.default_rng(1)
    centres = random.normal(size=(10, 400))
    classes = random.integers(0, 10, 3000)
    points = torch.from_numpy((centres[classes] + 0.7 * random.normal(size=(3000, 400))).astype(np.float32))
    queries, predicted = points[:200] + 0.3 * torch.from_numpy(random.normal(size=(200, 400)).astype(np.float32)), classes[:200]
    exact, quick = (_Directions(points, classes, search) for search in ("exact", "projected"))
    assert not exact.shortlist
    assert quick.shortlist
    for number, (one, other) in enumerate(
        zip(*(d.search(queries, predicted, 5, others=True) for d in (exact, quick)), strict=True)
    ):
        assert number or (other >= one - 1e-5).all()  # what is missed is farther
        assert float(np.abs(other - one).mean() / one.mean()) < 0.05


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.floats(0.01, 100))
def test_more_neighbours_are_farther_and_no_scale_counts(seed: int, k: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    points = torch.from_numpy(random.normal(size=(30, 5)).astype(np.float32))
    classes, queries = random.integers(0, 3, 30), torch.from_numpy(random.normal(size=(8, 5)).astype(np.float32))
    predicted = random.integers(0, 3, 8)
    near = _Directions(points, classes)
    own, other = near.search(queries, predicted, k, others=True)
    assert ((own >= 0) & (own <= 2 + 1e-9) & (other >= 0)).all()
    assert (near.search(queries, predicted, k + 1, others=False)[0] >= own - 1e-5).all()
    assert np.allclose(near.search(queries * scale, predicted, k, others=False)[0], own, atol=1e-5)
    halves = [near.search(queries[part], predicted[part], k, others=False)[0] for part in (slice(3), slice(3, 8))]
    assert np.allclose(np.concatenate(halves), own, atol=1e-5)
    shuffled = random.permutation(30)
    assert np.allclose(
        _Directions(points[shuffled], classes[shuffled]).search(queries, predicted, k, others=False)[0], own, atol=1e-6
    )


def test_which_layer_is_the_encoders_last() -> None:
    for name, layer, shape in (("mnist-lenet5", "pool2", (16, 7, 7)), ("cifar10-resnet20", "stage3", (64, 8, 8))):
        (last,) = load(f"zoo:{name}").survey().find("encoder")
        assert (last.name, last.shape) == (layer, shape)
    (hidden,) = load("zoo:mnist-fcnet5").survey().find("encoder")
    assert len(hidden.shape) == 1
    with refused("empty", "layers", match="no hidden layer"):
        Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval(), shape=(1, 2, 2)).survey().find("encoder")


def test_training_data_without_labels_few_inputs_and_bad_options() -> None:
    target, pool, train = subject()
    bare = ArraySource(train.read(np.arange(100)))
    assert len(select(target, pool, "nearest", 60, train=bare).order) == 60
    few = select(target, pool, "nearest:inputs=20", 60, train=train)
    assert few.order.tolist() != select(target, pool, "nearest", 60, train=train).order.tolist()
    with refused("missing", "train"):
        select(target, pool, "nearest", 5)
    for bad, code, option in (
        ("nearest:k=0", "out-of-range", "k"),
        ("nearest:doubt=-1", "out-of-range", "doubt"),
        ("nearest:search=fast", "wrong-type", "search"),
        ("nearest:inputs=0", "out-of-range", "inputs"),
    ):
        with refused(code, option):
            registry.build("selector", bad)


def test_a_class_without_training_inputs_is_said() -> None:
    target, pool, train = subject()
    assert train.labels is not None
    one = train.take(np.flatnonzero(train.labels == train.labels[0]))
    result = select(target, pool, "nearest:others=false", 60, train=one)
    assert any("no training input has" in note for note in result.notes)
