"""Selecting from a pool: orders, budgets, notes, runs, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import neurotest
from neurotest import registry, rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.mutate.pools import nss_pool
from neurotest.runs.store import Run
from neurotest.select import Selection, compare, select
from neurotest.select.api import rank
from neurotest.stats import faults
from neurotest.target import Target
from neurotest.zoo import embedded

N = 40
METHODS = sorted(registry.entries("selector"))
POINTWISE = [m for m in METHODS if getattr(registry.find("selector", m).make, "pointwise", m != "random")]


class Net(nn.Module):
    """Weights are multiples of 1/8, so on inputs that are multiples of 1/16 every sum is exact in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.pool = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        self.fc1, self.drop, self.fc2 = nn.Linear(18, 6), nn.Dropout(0.5), nn.Linear(6, 3)
        self._seen = 0
        random = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randint(-8, 9, weight.shape, generator=random) / 8)

    def forward(self, x: Tensor) -> Tensor:
        self._seen += len(x)
        x = self.pool(self.act(self.conv(x))).flatten(1)
        return self.fc2(self.drop(self.act(self.fc1(x))))


def target(**description: object) -> Target:
    return Target(Net().eval(), **{"shape": (1, 6, 6), **description})


def images(n: int = N, seed: int = 0) -> np.ndarray:
    return (rng.stream("test.images", seed).integers(0, 17, (n, 1, 6, 6)) / 16).astype(np.float32)


def labels(n: int = N) -> np.ndarray:
    return rng.stream("test.labels", 0).integers(0, 3, n)


def exact_pool() -> Source:
    return ArraySource(images(), labels(), originals=ArraySource(images(seed=1)))


def mutated_pool() -> Source:
    x = rng.stream("test.eight", 0).integers(0, 256, (N, 1, 6, 6), dtype=np.uint8)
    return nss_pool(source=ArraySource(x, labels(), spec="zoo:toy/test"), seed=0)


TRAIN = ArraySource(images(30, seed=2), labels(30))
# What some methods cannot do without, and no method minds.
GIVEN = {"train": TRAIN, "labels": {position: int(label) for position, label in enumerate(labels()) if position % 3 == 0}}


# -- properties of every registered selector


def same_order(a: Selection, b: Selection) -> bool:
    return np.array_equal(a.order, b.order) and np.array_equal(a.all_scores, b.all_scores)


@pytest.mark.parametrize("method", METHODS)
def test_an_order_is_a_permutation_along_which_scores_fall(method: str) -> None:
    found = select(target(), exact_pool(), method, 10, **GIVEN)
    assert sorted(found.order) == list(range(N))
    assert (np.diff(found.all_scores[found.order]) <= 0).all()
    assert np.array_equal(found.indices, found.order[:10])
    assert np.array_equal(found.scores, found.all_scores[found.indices])


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_selections(method: str) -> None:
    first, again = (select(target(), mutated_pool(), method, 10, seed=5, **GIVEN) for _ in range(2))
    assert same_order(first, again)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_the_batch_size_does_not_matter(method: str, batch: int) -> None:
    one, other = (select(target(), exact_pool(), method, 10, batch=b, **GIVEN) for b in (batch, 13))
    assert same_order(one, other)


@pytest.mark.parametrize("method", POINTWISE)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_shuffled_pool_is_ordered_alike(method: str, seed: int) -> None:
    """Scores go with the inputs, not with the places (random is a shuffle of the places, greedy ones break ties by place)."""
    source = exact_pool()
    shuffle = np.random.default_rng(seed).permutation(N)
    straight = select(target(), source, method, 10, **GIVEN)
    moved = {int(np.flatnonzero(shuffle == position)[0]): label for position, label in GIVEN["labels"].items()}
    turned = select(target(), source.take(shuffle), method, 10, train=TRAIN, labels=moved)
    assert turned.all_scores == pytest.approx(straight.all_scores[shuffle], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("method", POINTWISE)
@pytest.mark.parametrize("batch", [4, 100])
def test_ties_keep_the_order_of_the_pool(method: str, batch: int) -> None:
    """Four different inputs, each ten times."""
    source = exact_pool().take(np.arange(N) % 4)
    found = select(target(), source, method, 10, batch=batch, train=TRAIN, labels=dict.fromkeys(range(4), 0))
    assert len(np.unique(found.all_scores)) <= 4 + (method == "neighbours")  # what is labelled has a score of its own
    for score in np.unique(found.all_scores):
        tied = [int(i) for i in found.order if found.all_scores[i] == score]
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
    assert network.module._seen == 4 + 3 * N  # a look at four inputs; the pool, its originals, its mutants


def test_a_method_object_is_as_good_as_its_text() -> None:
    method = registry.build("selector", "nss:k=0.5")
    assert same_order(select(target(), exact_pool(), method, 5), select(target(), exact_pool(), "nss:k=0.5", 5))


def test_the_package_can_be_called() -> None:
    assert same_order(neurotest.select(target(), exact_pool(), "maxp", 5), select(target(), exact_pool(), "maxp", 5))


# -- results


def test_quality_is_that_of_the_order() -> None:
    source = exact_pool()
    found = select(target(), source, "deepgini", "25%")
    with torch.no_grad():
        predicted = Net().eval()(torch.from_numpy(images())).argmax(1).numpy()
    assert np.array_equal(found.predictions, predicted)
    wrong = (predicted != source.labels)[found.order]
    told = found.to_dict()
    assert told["budget"] == 10
    assert told["fdr"] == faults.fdr(wrong, 10)
    assert told["apfd"] == faults.apfd(wrong)
    assert told["relative_fdr"] == faults.relative_fdr(wrong, 10)
    assert told["fdr_interval"][0] <= told["fdr"] <= told["fdr_interval"][1]
    assert told["random"]["fdr"] == pytest.approx(wrong.mean())
    assert told["predicted"] == predicted[found.indices].tolist()


def test_without_labels_nothing_is_claimed() -> None:
    found = select(target(), exact_pool().without_labels(), "deepgini", 5)
    assert found.quality is None
    assert not {"fdr", "apfd", "random"} & set(found.to_dict())


def test_a_network_that_never_errs_has_no_apfd() -> None:
    x = images()
    with torch.no_grad():
        right = Net().eval()(torch.from_numpy(x)).argmax(1).numpy()
    told = select(target(), ArraySource(x, right), "deepgini", 5).to_dict()
    assert (told["fdr"], told["apfd"], told["fdr_ceiling"]) == (0, None, 0)
    json.dumps(told, allow_nan=False)


def test_other_views_of_a_selection(tmp_path: Path) -> None:
    found = select(target(), exact_pool(), "deepgini", 3)
    assert [row["index"] for row in found.table()] == found.indices.tolist()
    assert [row["rank"] for row in found.table()] == [1, 2, 3]
    saved = json.loads(found.save(tmp_path / "s.json").read_text())
    assert saved == json.loads(json.dumps(found.to_dict()))
    assert found._repr_html_().count("<tr>") == 4


# -- pairs


def test_the_original_is_the_default_where_it_is_known() -> None:
    source = mutated_pool()
    auto, explicit = (select(target(), source, method, 5) for method in ("nss", "nss:reference=original"))
    assert same_order(auto, explicit)
    assert "reference='original'" in auto.canonical
    assert not auto.notes


@pytest.mark.parametrize("method", ["nss", "nss:reference=remutate"])
def test_without_originals_a_note_says_that_it_is_near_chance(method: str) -> None:
    found = select(target(), ArraySource(mutated_pool().read(np.arange(N))), method, 5)
    assert "reference='remutate'" in found.canonical
    assert len(found.notes) == 1
    assert "near chance" in found.notes[0]
    assert not select(target(), exact_pool(), "deepgini", 5).notes


def test_the_original_must_be_known() -> None:
    with pytest.raises(BadInput, match="--originals"):
        select(target(), ArraySource(images()), "nss:reference=original", 5)


def test_originals_can_be_given() -> None:
    pool, originals = ArraySource(images()), ArraySource(images(seed=1))
    assert same_order(select(target(), pool, "nss", 5, originals=originals), select(target(), exact_pool(), "nss", 5))
    with pytest.raises(BadInput, match="there must be 40"):
        select(target(), pool, "nss", 5, originals=originals.take(np.arange(39)))


def test_a_limit_cuts_pool_and_originals_alike() -> None:
    pool, originals = ArraySource(images()), ArraySource(images(seed=1))
    limited = select(target(), pool, "nss", 5, originals=originals, limit=12)
    assert same_order(limited, select(target(), exact_pool().take(np.arange(12)), "nss", 5))


# -- training data


def test_candidates_that_stand_in_the_training_data_are_pointed_out() -> None:
    train = ArraySource(np.concatenate([images()[[3, 17]], images(5, seed=9)]))
    assert select(target(), exact_pool(), "deepgini", 5, train=train).in_training == (3, 17)
    assert select(target(), exact_pool(), "deepgini", 5).in_training == ()


def test_a_network_of_the_zoo_knows_its_training_data() -> None:
    try:
        pool = neurotest.data("zoo:mnist/train[:60]")
        found = select("zoo:mnist-lenet1", pool, "deepgini", "10%")
    except BadInput as error:
        pytest.skip(f"MNIST or its network was removed from this copy: {error}")
    assert found.in_training == tuple(range(60))
    assert select("zoo:mnist-lenet1", "zoo:mnist/test[:60]", "deepgini", "10%").in_training == ()


def test_a_removed_training_set_does_not_stop_a_network_of_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("mnist-lenet1 has no weights in this copy")
    monkeypatch.setattr(embedded, "DATA", tmp_path)
    pool = ArraySource(np.zeros((5, 1, 28, 28), np.uint8))
    assert select("zoo:mnist-lenet1", pool, "deepgini", 2).in_training == ()
    with pytest.raises(BadInput, match="was removed"):
        select("zoo:mnist-lenet1", pool, "deepgini", 2, train="zoo:mnist/train")


# -- runs


def test_a_run_holds_everything(tmp_path: Path) -> None:
    source = mutated_pool()
    found = compare(target(classes=["a", "b", "c"]), source, ["nss", "deepgini"], 6, out=tmp_path / "run", files=4)
    with Run.open(tmp_path / "run") as run:
        assert run["state"] == "done"
        assert run["config"]["fingerprint"] == target().fingerprint
        assert run["classes"] == ["a", "b", "c"]
        assert [row.name for row in run.methods()] == ["nss", "deepgini"]
        for method, selection in found.items():
            rows = run.ranking(method)
            assert [row.position for row in rows] == selection.order.tolist()
            assert [row.score for row in rows] == selection.all_scores[selection.order].tolist()
            assert sum(row.picked for row in rows) == 6
            assert run["summary"]["methods"][method]["fdr"] == selection.to_dict()["fdr"]
        inputs = run.inputs()
        assert [row.content for row in inputs] == source.ids().tolist()
        assert [row.label for row in inputs] == source.labels.tolist()
        assert inputs[5].extra["draw"] == source.notes["draws"].describe(5)
        stored = {row.position for row in run.files("picked")}
        assert stored == {int(i) for selection in found.values() for i in selection.indices[:4]}
        for position in stored:
            assert np.array_equal(run.load_input(position), source.read(np.array([position]))[0])
            assert np.array_equal(run.load_input(position, "original"), source.originals.read(np.array([position]))[0])
    assert found["nss"].run == tmp_path / "run"


def test_a_run_exports_csv_and_json(tmp_path: Path) -> None:
    found = select(target(), mutated_pool(), "deepgini", 6, out=tmp_path / "run")
    with open(tmp_path / "run" / "selection.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["position"]) for row in rows] == found.order.tolist()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "done"


def test_an_exact_float_pool_is_stored_exactly(tmp_path: Path) -> None:
    found = select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        for position in found.indices.tolist():
            assert np.array_equal(run.load_input(position), images()[position])


def test_without_out_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    select(target(), exact_pool(), "deepgini", 3)
    assert not list(tmp_path.iterdir())
    found = select(target(), exact_pool(), "deepgini", 3, out=None)
    assert found.run is not None
    assert (found.run / "run.sqlite").is_file()


def test_a_place_that_cannot_be_written_to_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    network = target()
    network.survey()
    network.module._seen = 0
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(BadInput, match="--out"):
            select(network, exact_pool(), "deepgini", 3, out=place)
    assert network.module._seen <= 8  # only the look at a few inputs, twice


def test_an_existing_run_is_refused(tmp_path: Path) -> None:
    select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")
    with pytest.raises(BadInput, match="holds a run already"):
        select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")


def test_a_selection_that_fails_leaves_no_run(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run", batch=10, progress=stop)
    assert not (tmp_path / "run").exists()


# -- refusals


@pytest.mark.parametrize("budget", [0, "0%", -1, N + 1, "101%", "abc", "", 2.5, "nan"])
def test_bad_budgets(budget: object) -> None:
    with pytest.raises(BadInput, match="budget="):
        select(target(), exact_pool(), "deepgini", budget)


@pytest.mark.parametrize(("budget", "picked"), [("5%", 2), (0.05, 2), (7, 7), ("100%", N), (N, N), ("0.1%", 1)])
def test_budgets(budget: object, picked: int) -> None:
    assert select(target(), exact_pool(), "deepgini", budget).picked == picked


@pytest.mark.parametrize(
    ("method", "match"),
    [
        ("deepgin", "unknown selector 'deepgin'. Did you mean deepgini"),
        ("deepgini:3", "no bare value"),
        ("nss:layer=conf", "layers='conf' matches no layer. Did you mean conv"),
        ("nss k=1", "cannot read the method"),
    ],
)
def test_bad_methods(method: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        select(target(), exact_pool(), method, 5)


def test_no_method_at_all() -> None:
    with pytest.raises(BadInput, match="methods: none given"):
        compare(target(), exact_pool(), [])


def test_layers_from_the_command_line() -> None:
    said = select(target(), exact_pool(), "nss", 5, layers="conv", neuron="channel")
    assert same_order(said, select(target(), exact_pool(), "nss:layer=conv,neuron=channel", 5))
    with pytest.raises(BadInput, match="deepgini looks at the outputs only"):
        select(target(), exact_pool(), "deepgini", 5, layers="conv")
    with pytest.raises(BadInput, match="say which layer"):
        select(target(), exact_pool(), "nss", 5, neuron="channel")


class Fragile(Net):
    """Divides zero by zero when the first pixel is white, in its answer or beside it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.beside = where, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        bad = torch.where(x[:, :1, 0, 0] == 1, torch.nan, 0.0)  # (n, 1)
        self.beside(bad)
        return super().forward(x) + (bad if self.where == "answer" else 0)


def fragile_pool() -> Source:
    x = images()
    x[:, 0, 0, 0] = 0.5
    x[33, 0, 0, 0] = 1
    return ArraySource(x, originals=ArraySource(x))


def test_nan_outputs_are_refused_and_the_input_is_named() -> None:
    network = Target(Fragile("answer").eval(), shape=(1, 6, 6))
    with pytest.raises(BadInput, match=r"NaN or infinite outputs, first for input 33"):
        select(network, fragile_pool(), "deepgini", 5, batch=10)


def test_nan_activations_are_refused() -> None:
    network = Target(Fragile("beside").eval(), shape=(1, 6, 6))
    assert select(network, fragile_pool(), "deepgini", 5).picked == 5
    with pytest.raises(BadInput, match=r"no score for 1 input"):
        select(network, fragile_pool(), "nss:layer=beside", 5)


def test_labels_beyond_the_classes_are_refused() -> None:
    """Labels counted from 1 are the usual cause."""
    with pytest.raises(BadInput, match="label 3, but the target has 3 classes"):
        select(target(), ArraySource(images(), labels() + 1), "deepgini", 5)


def test_a_pool_of_another_shape_is_refused() -> None:
    with pytest.raises(BadInput, match="the target expects 1x6x6"):
        select(target(), ArraySource(np.zeros((5, 1, 8, 8), np.uint8)), "deepgini", 2)


def test_a_network_in_training_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="training mode"):
        select(Target(Net(), shape=(1, 6, 6)), exact_pool(), "deepgini", 2)


def test_vectors_cannot_be_mutated() -> None:
    network = Target(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), shape=(4,))
    pool = ArraySource(np.random.default_rng(0).random((9, 4), dtype=np.float32))
    assert select(network, pool, "entropy", 3).picked == 3
    with pytest.raises(BadInput, match="mutations need images"):
        select(network, pool, "nss", 3)
