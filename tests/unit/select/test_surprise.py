"""Surprise adequacy as a selector: the scores are those of the coverage package, in whatever batches they come."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from neurotest.coverage import adequacy
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.measure.context import Traces
from neurotest.select import compare, select
from neurotest.select.scorer import steady
from neurotest.target import Probe, Want

from .subjects import centred as target


def points(n: int, seed: int) -> ArraySource:
    """Multiples of 1/16: the network's sums are exact on them, so that batches and processors cannot matter."""
    return ArraySource((np.random.default_rng(seed).integers(0, 17, (n, 6)) / 16).astype(np.float32))


POOL, TRAIN = points(30, 1), points(80, 2)


def recorded(source: ArraySource) -> Traces:
    network = target()
    with Probe(network, Want()) as probe:
        trace = probe(network.prepare(source.read(np.arange(len(source)))))
    return Traces(torch.cat(list(trace.values.values()), dim=1).numpy(), trace.predictions.numpy())


@pytest.mark.parametrize(
    ("method", "same"),
    [("lsa", adequacy.LSA()), ("dsa", adequacy.DSA()), ("dsa:test", adequacy.DSA(reference="test")), ("mdsa", adequacy.MDSA()),
     ("mdsa:squared=true,per=all", adequacy.MDSA(squared=True, per="all")), ("mlsa:2", adequacy.MLSA(components=2))],
)  # fmt: skip
def test_scores_are_those_of_the_scorer(method: str, same: adequacy.Adequacy) -> None:
    pool = recorded(POOL)
    expected = same.fit(recorded(TRAIN)).score(pool.values, pool.predicted)
    selection = select(target(), POOL, method, 5, train=TRAIN, batch=7)
    assert np.isfinite(expected).all()
    assert selection.all_scores == pytest.approx(expected, rel=1e-8)  # a selection keeps nine digits


def test_several_share_one_pass_over_the_training_data() -> None:
    network = target()
    seen: list[int] = []
    handle = network.module.register_forward_hook(lambda m, args, out: seen.append(len(out)))
    compare(network, POOL, ["dsa", "mdsa", "cam:kmnc:10", "deepgini"], 5, train=TRAIN, batch=1000)
    handle.remove()
    assert seen.count(80) == 1
    assert seen.count(30) == 1


def test_a_class_training_never_had_comes_first_and_can_be_written_down() -> None:
    kept = recorded(TRAIN).predicted
    common = np.bincount(kept).argsort()[::-1][:2]
    train = TRAIN.take(np.flatnonzero(np.isin(kept, common)))
    unseen = ~np.isin(recorded(POOL).predicted, common)
    assert unseen.any()
    selection = select(target(), POOL, "dsa", 5, train=train)
    assert set(selection.order[: unseen.sum()]) == set(np.flatnonzero(unseen))
    assert any("infinitely surprising" in note for note in selection.notes)
    json.dumps(selection.to_dict(), allow_nan=False)


def test_one_class_alone_is_refused() -> None:
    train = TRAIN.take(np.flatnonzero(recorded(TRAIN).predicted == recorded(TRAIN).predicted[0])[:5])
    with pytest.raises(BadInput, match="at least two predicted classes"):
        select(target(), POOL, "dsa", 5, train=train)


def test_rounding_keeps_nine_digits() -> None:
    values = np.array([123.456789012345, -1e-20, 0.0, np.inf, np.nan, 1e300])
    assert steady(values)[:3].tolist() == pytest.approx([123.456789, -1e-20, 0.0], rel=1e-12, abs=0)
    assert np.isinf(steady(values)[3])
    assert np.isnan(steady(values)[4])
    assert steady(values)[5] == pytest.approx(1e300)
