"""Labels that look wrong: by hand, against a plain loop, properties, planted errors on real networks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import neurotest
from neurotest.data.source import ArraySource
from neurotest.measure.answers import log_softmax
from neurotest.report import write_report
from neurotest.select.suspects import DOUBT, NEIGHBOURS, WEIGHT, _label_mistakes, _Mistakes, _wrong_share, evidence

pytestmark = pytest.mark.by_hand


def test_by_hand() -> None:
    """Three inputs; the last one lies beside the first, and is labelled otherwise than both the network and the first say."""
    log_probs = np.log(np.array([[0.8, 0.2], [0.2, 0.8], [0.75, 0.25]]))
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    labels = np.array([0, 1, 1])
    result = evidence(log_probs, labels, np.arange(3), features, labels)
    # Both others are neighbours: of the third, one vote for each class; of the first, two for class 1. Votes count half.
    first = math.log(0.2 * math.sqrt(2.5) / (0.8 * math.sqrt(0.5)))
    assert result.margin == pytest.approx([first, math.log(0.2 / 0.8), math.log(0.75 / 0.25)])
    assert result.suggested.tolist() == [1, 0, 0]
    # Of the inputs of class 0, 3 % get label 1 by mistake: three times more than usual, on top of the usual.
    often = evidence(log_probs, labels, np.arange(3), features, labels, _Mistakes(np.array([0]), np.array([1]), np.array([0.03])))
    assert often.margin == pytest.approx([first, math.log(0.2 / 0.8) + math.log(4), math.log(3) + math.log(4)])


def test_mistakes_are_read_from_the_surer_half() -> None:
    """Of eight inputs taken for class 0, the four surest count, two of them with label 1."""
    chances = np.array([0.999, 0.999, 0.999, 0.999, 0.6, 0.6, 0.6, 0.6])
    log_probs = np.log(np.stack([chances, 1 - chances], axis=1))
    shares = _label_mistakes(log_probs, np.array([1, 1, 0, 0, 1, 1, 1, 1]))
    assert (shares.true.tolist(), shares.given.tolist()) == ([0], [1])
    assert shares.share == pytest.approx([(2 - 0.004 - math.sqrt(1.004)) / 4])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(2, 9))
def test_mistakes_are_those_of_a_table_of_all_pairs(seed: int, n: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    log_probs, labels = log_softmax(4 * random.normal(size=(n, classes))), random.integers(0, classes, n)
    table = np.zeros((classes, classes))
    for true in range(classes):
        rows = sorted(np.flatnonzero(log_probs.argmax(1) == true), key=lambda row: -log_probs[row].max())
        for other in range(classes):
            surer = rows[: len(rows) // 2]
            if surer and other != true:
                foretold = sum(math.exp(log_probs[row, other]) for row in surer)
                excess = sum(labels[row] == other for row in surer) - foretold - math.sqrt(foretold + 1)
                table[true, other] = max(0, excess) / len(surer)
    prior = _label_mistakes(log_probs, labels).prior(labels, classes)
    assert prior == pytest.approx(np.log1p(table / 0.01)[:, labels].T)


def plain(log_probs: np.ndarray, labels: np.ndarray, features: np.ndarray) -> list[float]:
    margins = []
    for i in range(len(labels)):
        angles = []
        for j in range(len(labels)):
            if i != j:
                lengths = np.sqrt((features[i] ** 2).sum()) * np.sqrt((features[j] ** 2).sum())
                angles.append((-float((features[i] * features[j]).sum() / lengths), j))
        votes = np.zeros(log_probs.shape[1])
        for _, j in sorted(angles)[:NEIGHBOURS]:
            votes[labels[j]] += 1
        scores = [math.exp(log_probs[i, c]) * (votes[c] + DOUBT) ** WEIGHT for c in range(log_probs.shape[1])]
        margins.append(math.log(sum(s for c, s in enumerate(scores) if c != labels[i]) / scores[labels[i]]))
    return margins


@pytest.mark.parametrize("sure", [0.5, 3.0, 40.0])
def test_as_a_plain_loop_wherever_a_label_could_be_wrong(sure: float) -> None:
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(60, 5)), random.integers(0, 4, 60)
    log_probs = log_softmax(sure * random.normal(size=(60, 4)))
    ours = evidence(log_probs, labels, np.arange(60), features, labels).margin
    expected = np.array(plain(log_probs, labels, features))
    assert ours[expected > 0] == pytest.approx(expected[expected > 0])
    assert (ours[expected <= 0] <= 1e-9).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40))
def test_the_order_of_the_inputs_does_not_matter(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    features, labels, log_probs = random.normal(size=(n, 3)), random.integers(0, 3, n), log_softmax(random.normal(size=(n, 3)))
    shuffled = random.permutation(n)
    one = evidence(log_probs, labels, np.arange(n), features, labels)
    other = evidence(log_probs[shuffled], labels[shuffled], np.arange(n), features[shuffled], labels[shuffled])
    assert other.margin == pytest.approx(one.margin[shuffled])


def test_the_share_is_read_from_the_surest() -> None:
    confidence = np.concatenate([np.full(100, 1.0), np.full(300, 0.5)])
    agrees = np.ones(400, dtype=bool)
    agrees[:4] = False
    agrees[100:250] = False  # the network's own mistakes, where it is not sure
    share = _wrong_share(confidence, agrees)
    assert share.value == pytest.approx(0.04)
    assert 0.01 < share.low < 0.04 < share.high < 0.11
    assert _wrong_share(np.full(400, 0.9), np.arange(400) >= 10).value == pytest.approx(0)  # ten in a hundred are foretold


@pytest.fixture(scope="module")
def planted() -> tuple[ArraySource, np.ndarray]:
    source = neurotest.data("zoo:fashion-mnist/test[:2000]")
    assert source.labels is not None
    random = np.random.default_rng(7)
    where = random.permutation(2000)[:60]
    labels = source.labels.copy()
    labels[where] = (labels[where] + random.integers(1, 10, 60)) % 10
    return ArraySource(source.read(np.arange(2000)), labels), where


def test_planted_errors_come_first_and_their_share_is_known(planted: tuple[ArraySource, np.ndarray]) -> None:
    source, where = planted
    result = neurotest.suspects("zoo:fashion-lenet5", source)
    assert np.isin(result.order[:60], where).mean() > 0.7  # 3 % by chance
    assert result.share.low > 0.01
    assert 0.015 < result.share.value < 0.06
    assert result.table()[0]["label"] != result.table()[0]["suggested"]
    clean = neurotest.suspects("zoo:fashion-lenet5", "zoo:fashion-mnist/test[:2000]")
    assert clean.share.high < 0.015


def test_a_run_with_its_page(planted: tuple[ArraySource, np.ndarray], tmp_path: Path) -> None:
    result = neurotest.suspects("zoo:fashion-lenet5", planted[0], out=tmp_path / "run")
    page = write_report(tmp_path / "run").read_text()
    assert page.count("<img") == min(40, result.count) > 0
    assert "Labels that look wrong" in page
    assert json.loads(result.save(tmp_path / "r.json").read_text())["count"] == result.count
    assert "<table>" in result._repr_html_()


def test_data_without_labels_are_refused() -> None:
    with refused("no-labels", "data"):
        neurotest.suspects("zoo:mnist-lenet1", neurotest.data("zoo:mnist/test[:20]").without_labels())


def test_one_input_has_no_neighbours() -> None:
    assert len(neurotest.suspects("zoo:mnist-lenet1", "zoo:mnist/test[:1]").order) == 1
