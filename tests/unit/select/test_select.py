"""Selecting from a pool: orders, several methods at once, results, pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import neurotest
from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.select import compare, select
from neurotest.select.api import rank
from neurotest.stats import faults

from .subjects import INPUTS, TRAIN, N, Net, exact_pool, images, mutated_pool, same_order, target

METHODS = sorted(n for n, e in registry.entries("selector").items() if not e.make.quantities)  # type: ignore[attr-defined]
POINTWISE = [m for m in METHODS if registry.find("selector", m).make.pointwise]  # type: ignore[attr-defined]


# -- properties of every registered selector


@pytest.mark.parametrize("method", METHODS)
def test_an_order_is_a_permutation_along_which_scores_fall(method: str) -> None:
    selection = select(target(), exact_pool(), method, 10, **INPUTS)
    assert sorted(selection.order) == list(range(N))
    assert (np.diff(selection.all_scores[selection.order]) <= 0).all()
    assert np.array_equal(selection.indices, selection.order[:10])
    assert np.array_equal(selection.scores, selection.all_scores[selection.indices])


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_selections(method: str) -> None:
    first, again = (select(target(), mutated_pool(), method, 10, seed=5, **INPUTS) for _ in range(2))
    assert same_order(first, again)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_the_batch_size_does_not_matter(method: str, batch: int) -> None:
    one, other = (select(target(), exact_pool(), method, 10, batch=b, **INPUTS) for b in (batch, 13))
    assert same_order(one, other)


@pytest.mark.parametrize("method", POINTWISE)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_shuffled_pool_is_ordered_alike(method: str, seed: int) -> None:
    """Scores go with the inputs, not with the places (random is a shuffle of the places, greedy ones break ties by place)."""
    source = exact_pool()
    shuffle = np.random.default_rng(seed).permutation(N)
    straight = select(target(), source, method, 10, **INPUTS)
    moved = {int(np.flatnonzero(shuffle == position)[0]): label for position, label in INPUTS["labels"].items()}
    turned = select(target(), source.take(shuffle), method, 10, train=TRAIN, labels=moved)
    assert turned.all_scores == pytest.approx(straight.all_scores[shuffle], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("method", POINTWISE)
@pytest.mark.parametrize("batch", [4, 100])
def test_ties_keep_the_order_of_the_pool(method: str, batch: int) -> None:
    """Four different inputs, each ten times."""
    source = exact_pool().take(np.arange(N) % 4)
    selection = select(target(), source, method, 10, batch=batch, train=TRAIN, labels=dict.fromkeys(range(4), 0))
    assert len(np.unique(selection.all_scores)) <= 4 + (method == "neighbours")  # what is labelled has a score of its own
    for score in np.unique(selection.all_scores):
        tied = [int(i) for i in selection.order if selection.all_scores[i] == score]
        assert tied == sorted(tied)


def test_random_is_a_seeded_shuffle() -> None:
    orders = [tuple(select(target(), exact_pool(), "random", 5, seed=seed).order) for seed in range(4)]
    assert len(set(orders)) == 4


def test_other_seeds_give_other_mutants() -> None:
    first, other = (select(target(), mutated_pool(), "nss:reference=remutate", 5, seed=seed).all_scores for seed in (0, 1))
    assert not np.allclose(first, other)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0, np.inf]), min_size=1, max_size=30))
def test_ranking_is_stable(scores: list[float]) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert rank(np.array(scores)).tolist() == expected


# -- several methods from one pass


COMPARED = [
    "deepgini", "random", "nss", "nss:sample=7", "nss:sample=15,k=0.5,identify=vote", "nss:distance=cosine",
    "nss:reference=remutate", "nss:reference=remutate,n_mutants=2,sample=11",
]  # fmt: skip


def test_comparing_equals_selecting_one_by_one() -> None:
    source = mutated_pool()
    together = compare(target(), source, COMPARED, "20%", seed=2)
    assert list(together) == COMPARED
    for method in COMPARED:
        alone = select(target(), source, method, "20%", seed=2)
        assert together[method].all_scores == pytest.approx(alone.all_scores, abs=1e-5), method
        assert np.array_equal(together[method].order, alone.order), method
        assert together[method].canonical == alone.canonical
        assert together[method].notes == alone.notes


def test_comparing_forwards_the_pool_and_each_kind_of_partner_once() -> None:
    network = target()
    network.survey()
    network.module._seen = 0
    compare(network, mutated_pool(), ["deepgini", "nss", "nss:distance=cosine", "nss:reference=remutate"], 5)
    assert network.module._seen == 3 * 4 + 3 * N  # a look at four inputs, twice more for equal answers; pool, originals, mutants


def test_a_method_object_is_as_good_as_its_text() -> None:
    method = registry.build("selector", "nss:k=0.5")
    assert same_order(select(target(), exact_pool(), method, 5), select(target(), exact_pool(), "nss:k=0.5", 5))


def test_the_package_can_be_called() -> None:
    assert same_order(neurotest.select(target(), exact_pool(), "maxp", 5), select(target(), exact_pool(), "maxp", 5))


# -- results


def test_quality_is_that_of_the_order() -> None:
    source = exact_pool()
    selection = select(target(), source, "deepgini", "25%")
    with torch.no_grad():
        predicted = Net().eval()(torch.from_numpy(images())).argmax(1).numpy()
    assert np.array_equal(selection.predictions, predicted)
    wrong = (predicted != source.labels)[selection.order]
    content = selection.to_dict()
    assert content["budget"] == 10
    assert content["fdr"] == faults.fdr(wrong, 10)
    assert content["apfd"] == faults.apfd(wrong)
    assert content["relative_fdr"] == faults.relative_fdr(wrong, 10)
    assert content["fdr_interval"][0] <= content["fdr"] <= content["fdr_interval"][1]
    assert content["random"]["fdr"] == pytest.approx(wrong.mean())
    assert content["predicted"] == predicted[selection.indices].tolist()


def test_without_labels_nothing_is_claimed() -> None:
    selection = select(target(), exact_pool().without_labels(), "deepgini", 5)
    assert selection.quality is None
    assert not {"fdr", "apfd", "random"} & set(selection.to_dict())


def test_a_network_that_never_errs_has_no_apfd() -> None:
    x = images()
    with torch.no_grad():
        right = Net().eval()(torch.from_numpy(x)).argmax(1).numpy()
    content = select(target(), ArraySource(x, right), "deepgini", 5).to_dict()
    assert (content["fdr"], content["apfd"], content["fdr_ceiling"]) == (0, None, 0)
    json.dumps(content, allow_nan=False)


def test_other_views_of_a_selection(tmp_path: Path) -> None:
    selection = select(target(), exact_pool(), "deepgini", 3)
    assert [row["index"] for row in selection.table()] == selection.indices.tolist()
    assert [row["rank"] for row in selection.table()] == [1, 2, 3]
    saved = json.loads(selection.save(tmp_path / "s.json").read_text())
    assert saved == json.loads(json.dumps(selection.to_dict()))
    assert selection._repr_html_().count("<tr>") == 4


# -- pairs


def test_the_original_is_the_default_where_it_is_known() -> None:
    source = mutated_pool()
    auto, explicit = (select(target(), source, method, 5) for method in ("nss", "nss:reference=original"))
    assert same_order(auto, explicit)
    assert "reference='original'" in auto.canonical
    assert not auto.notes


@pytest.mark.parametrize("method", ["nss", "nss:reference=remutate"])
def test_without_originals_a_note_says_that_it_is_near_chance(method: str) -> None:
    selection = select(target(), ArraySource(mutated_pool().read(np.arange(N))), method, 5)
    assert "reference='remutate'" in selection.canonical
    assert len(selection.notes) == 1
    assert "near chance" in selection.notes[0]
    assert not select(target(), exact_pool(), "deepgini", 5).notes


def test_the_original_must_be_known() -> None:
    with refused("missing", "originals"):
        select(target(), ArraySource(images()), "nss:reference=original", 5)


def test_originals_can_be_given() -> None:
    pool, originals = ArraySource(images()), ArraySource(images(seed=1))
    assert same_order(select(target(), pool, "nss", 5, originals=originals), select(target(), exact_pool(), "nss", 5))
    with refused("wrong-count", "originals"):
        select(target(), pool, "nss", 5, originals=originals.take(np.arange(39)))


def test_a_limit_cuts_pool_and_originals_alike() -> None:
    pool, originals = ArraySource(images()), ArraySource(images(seed=1))
    limited = select(target(), pool, "nss", 5, originals=originals, limit=12)
    assert same_order(limited, select(target(), exact_pool().take(np.arange(12)), "nss", 5))
