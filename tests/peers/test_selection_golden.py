"""Orders and scores against other people's implementations on one fixed subject: ATS, CES, CAM, CTM, surprise, MC samples."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden import arrays, numbers
from tests.golden.subject import activations, joined

from neurotest.coverage.surprise import DSC
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import Layout
from neurotest.select import surprise
from neurotest.select.api import rank
from neurotest.select.ats import ATS, SURE, UNITS, _greedy, _intervals
from neurotest.select.dropout import _mutual_information, _predictive_entropy, _variation_ratio
from neurotest.select.estimation import CES, _grow
from neurotest.select.greedy import CAM, CTM, Collected, _bucketed
from neurotest.select.scorer import steady
from neurotest.target import Profile, Trace, Want

pytestmark = pytest.mark.by_hand

WANT = Want()


# -- MC-dropout, on the same samples


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (_variation_ratio, "VariationRatio"),
        (_predictive_entropy, "PredictiveEntropy(bits)"),
        (_mutual_information, "MutualInformation(bits)"),
    ],
)
def test_scores_on_the_same_samples(rule: Any, key: str) -> None:
    samples = torch.from_numpy(arrays("mc_dropout_samples")["softmax_samples"]).double()
    assert np.abs(rule(samples).numpy() - arrays("selection")[f"uwiz|MC20|{key}"]).max() < 1e-6


# -- ATS


@cache
def patterns(projection: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Added length by input (0: none), union of each class, how many add something, and the sure ones by class."""
    probs = arrays("outputs")["softmax_test"]  # in single precision, as the peer had it
    predicted = probs.argmax(axis=1)
    added, unions, sizes, sure = np.zeros(len(probs)), [], [], []
    for own in range(10):
        here = np.flatnonzero(predicted == own)
        unsure = here[probs[here, own] < SURE]
        sure.append(here[probs[here, own] > SURE])
        cover = _greedy(*_intervals(probs[unsure], own, projection=projection), 100)
        added[unsure[cover.picked]] = np.array(cover.added) / UNITS
        unions.append(cover.union / UNITS / 36)
        sizes.append(len(cover.picked))
    return added, np.array(unions), np.array(sizes), np.concatenate(sure)


@pytest.mark.parametrize(("projection", "key"), [("published", "ATS"), ("fixed", "ATS_fixed_projection")])
def test_order_of_ats(projection: str, key: str) -> None:
    """The 200 that add something come in the peer's order; where lengths are equal its rounding errors decide."""
    added, _, sizes, sure = patterns(projection)
    theirs = arrays("selection")[f"{key}|order"]
    count = int(sizes.sum())
    assert count == 200
    assert set(np.flatnonzero(added)) == set(theirs[:count])
    assert np.diff(added[theirs[:count]]).max() <= 0
    assert np.mean(rank(added)[:count] == theirs[:count]) > 0.95
    assert np.array_equal(rank(added)[:30], theirs[:30])
    shuffled = sure[np.random.RandomState(0).permutation(len(sure))]
    assert np.array_equal(shuffled, theirs[-len(sure) :])


def test_coverage_of_ats_per_class() -> None:
    _, unions, sizes, _ = patterns("published")
    assert np.abs(unions - arrays("selection")["ATS|coverage_per_class"]).max() < 1e-9
    assert np.array_equal(sizes, arrays("selection")["ATS|max_cov_size"])


@pytest.mark.parametrize(("projection", "key"), [("published", "ATS"), ("fixed", "ATS_fixed_projection")])
def test_ats_as_a_selector(projection: str, key: str) -> None:
    """From logits in double precision: who adds something, who is sure, and the tail, are the peer's; the head nearly so."""
    logits = torch.from_numpy(arrays("outputs")["logits_test"])
    method = ATS(projection=projection)  # type: ignore[arg-type]
    state = method.start(_Sized(300))  # type: ignore[arg-type]
    for at in range(0, 300, 64):
        state.update(np.arange(300)[at : at + 64], Trace(logits[at : at + 64]), ())
    order, theirs = rank(state.value()), arrays("selection")[f"{key}|order"]
    assert sorted(order) == list(range(300))
    assert np.array_equal(order[:25], theirs[:25])
    assert set(order[:200]) == set(theirs[:200])
    assert set(order[200:231]) == set(theirs[200:231])
    assert np.array_equal(order[231:], theirs[231:])


@pytest.mark.parametrize(("projection", "key"), [("published", "ATS"), ("fixed", "ATS_fixed_projection")])
def test_ats_with_the_books_of_its_code(projection: str, key: str) -> None:
    """All 300 in the peer's order, but for one or two pairs of equal length, which its rounding errors turn round."""
    probs = arrays("outputs")["softmax_test"]
    predicted = probs.argmax(axis=1)
    unsure = np.flatnonzero(probs.max(axis=1) < SURE)
    method = ATS(projection=projection, books="published")  # type: ignore[arg-type]
    scores = method.scores(probs[unsure], predicted[unsure], unsure, 300)
    order, theirs = rank(np.nan_to_num(scores, nan=-1.0))[:231], arrays("selection")[f"{key}|order"][:231]
    differ = np.flatnonzero(order != theirs)
    assert len(differ) <= 4
    assert np.abs(scores[order[differ]] - scores[theirs[differ]]).max(initial=0) < 1e-9


class _Sized:
    """A pool of which only the size matters."""

    seed = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n


# -- CES


def test_tables_of_ces() -> None:
    """The code's parts, shares and objective on relu(Linear-2)."""
    golden, acts = arrays("selection"), arrays("acts_channelmean_preact")
    values = np.maximum(acts["test/Linear-2"], 0)
    table = CES(edges="published").table(values)
    assert np.abs(table.whole - golden["CES|probs"]).max() < 1e-12
    for name, index in (("first30", np.arange(30)), ("all300", np.arange(300)), ("every7", np.arange(0, 300, 7))):
        ours = table.entropy(table.tally(index), len(index))
        assert np.abs(ours - golden[f"CES|entropy|{name}"]).max() < 1e-9, name
        assert ours.mean() == pytest.approx(numbers("selection")[f"CES/mean/{name}"], abs=1e-9)


def test_picks_of_ces() -> None:
    """With the peer's generator, and repeats as it allows them, the picks are the peer's, one by one."""
    values = np.maximum(arrays("acts_channelmean_preact")["test/Linear-2"], 0)
    picks = _grow(CES(edges="published").table(values), 60, np.random.RandomState(4), repeats=True)
    assert np.array_equal(picks, arrays("selection")["CES|select60_np_seed4"])


# -- CTM and CAM


def trace(which: str, split: str) -> Trace:
    acts = {name: torch.from_numpy(values) for name, values in activations(split, which).items()}
    return Trace(torch.zeros(len(next(iter(acts.values()))), 10), {WANT: acts})


@cache
def context(which: str) -> Context:
    profile = Profile("golden", WANT, {})
    profile.update(trace(which, "train"))
    layout = Layout({name: values.shape[1] for name, values in activations("test", which).items()})
    return Context(layouts={WANT: layout}, profiles={WANT: profile})


CRITERIA = {
    "NAC(0.0)": "nac:0.0", "NAC(0.5)": "nac:0.5", "NAC(0.75)": "nac:0.75",
    **{f"KMNC({k})": f"kmnc:sections={k};edges=dnn_tip" for k in (2, 10, 100, 1000)},
    **{f"NBC({s})": f"nbc:scale={s};strict=false" for s in (0, 0.5, 1)},
    **{f"SNAC({s})": f"snac:scale={s};strict=false" for s in (0, 0.5, 1)},
    **{f"TKNC({k})": f"tknc:{k}" for k in (1, 2, 3, 10)},
}  # fmt: skip
KEYS = [f"A/{key}" for key in CRITERIA] + [f"B/{key}" for key in CRITERIA if key not in ("KMNC(100)", "KMNC(1000)")]


def scored(method: Any, which: str) -> np.ndarray:
    state = Collected(method, method.measure.start(context(which)))
    state.update(np.arange(300), trace(which, "test"), ())
    return state.value()


@pytest.mark.parametrize("key", KEYS)
def test_cam_of_dnn_tip(key: str) -> None:
    which, criterion = key.split("/")
    scores = scored(CAM(criterion=CRITERIA[criterion]), which)
    about = numbers("dnn_tip")[key]
    if not about["covered"]:
        assert scores.max() == 0
        return
    until = about["cam_len_until_full"]
    order = rank(scores)
    assert (scores >= 1).sum() == until
    theirs = key.replace("/", "|")
    assert np.array_equal(order[:until], arrays("dnn_tip")[f"{theirs}|cam"][:until])
    assert np.array_equal(np.cumsum(scores[order])[:until], arrays("dnn_tip")[f"{theirs}|cam_cumulative"][:until])


@pytest.mark.parametrize("key", KEYS)
def test_ctm_of_dnn_tip(key: str) -> None:
    """Its sort is unstable: the scores along the order are compared."""
    which, criterion = key.split("/")
    scores = scored(CTM(criterion=CRITERIA[criterion]), which)
    assert np.array_equal(scores[arrays("dnn_tip")[f"{which}|{criterion}|ctm"]], scores[rank(scores)])


@pytest.mark.parametrize("sections", [10, 1000])
@pytest.mark.parametrize("overflow", [False, True])
def test_cam_on_surprise_coverage_of_dnn_tip(sections: int, overflow: bool) -> None:
    from neurotest.coverage.surprise import SurpriseState

    criterion = DSC(buckets="dnn_tip", sections=sections, overflow=overflow)
    state = SurpriseState(criterion, Layout({"all": 236}), None)  # type: ignore[arg-type]
    scores = CAM().order_by(_bucketed(state, arrays("dnn_tip")["SA|A236|DSA"]))
    covered = numbers("dnn_tip")[f"SC/DSA A236/sections={sections}/overflow={overflow}"]["covered"]
    assert (scores >= 1).sum() == covered
    theirs = arrays("dnn_tip")[f"SC|DSA_A236|k{sections}|ov{overflow}|cam"]
    assert np.array_equal(rank(scores)[:covered], theirs[:covered])


# -- surprise


@pytest.mark.parametrize(
    ("method", "key", "columns"),
    [
        (surprise.DSA(min_var=0, features=None), "A236|DSA", slice(0, 236)),
        (surprise.DSA(min_var=0, features=None), "fc2_84|DSA", slice(142, 226)),
        (surprise.DSA(min_var=0, features=None), "logits10|DSA", slice(226, 236)),
        (surprise.LSA(min_var=0, features=None, per="all"), "logits10|LSA", slice(226, 236)),
        (surprise.LSA(min_var=0, features=None), "logits10|pc-LSA", slice(226, 236)),
        (surprise.MDSA(min_var=0, features=None, per="all", squared=True), "logits10|MDSA", slice(226, 236)),
        (surprise.MDSA(min_var=0, features=None, squared=True), "logits10|pc-MDSA", slice(226, 236)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_orders_by_surprise_of_dnn_tip(method: Any, key: str, columns: slice) -> None:
    outputs = arrays("outputs")
    train, test = joined("train")[:, columns], joined("test")[:, columns]
    ours = method.fit(Traces(train, outputs["pred_train"])).score(test, outputs["pred_test"])
    theirs = arrays("dnn_tip")[f"SA|{key}"]
    order = rank(steady(ours))
    along = theirs[order]
    assert (np.diff(along) <= 1e-5 * np.abs(along[1:])).all()
    assert np.mean(order == rank(theirs)) > 0.97
