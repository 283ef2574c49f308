"""The `nss` mutations: what is drawn, that it can be replayed, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor

import neurotest
from neurotest import registry, rng
from neurotest.campaign.replay import replay
from neurotest.campaign.shrink import shrink
from neurotest.cli.tools import list_kind
from neurotest.levels import EIGHT
from neurotest.mutate import chain as chains
from neurotest.mutate.base import Draws
from neurotest.mutate.chain import Chain, Mutation
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.operators import Rotation
from neurotest.runs.store import Run

pytestmark = pytest.mark.by_hand

NSS, POOL = NssMutations(), NssMutations(rounding="pool")


def draw(n: int, seed: int = 0) -> Draws:
    return NSS.draw(rng.stream("test.space", seed), n)


def pictures(n: int, seed: int = 0, c: int = 1, side: int = 12) -> Tensor:
    values = rng.stream("test.pictures", seed).integers(0, 256, (n, c, side, side), dtype=np.uint8)
    return torch.from_numpy(values).float().div_(255)


def test_it_is_registered() -> None:
    assert registry.build("mutation", "nss") == NSS
    assert NSS.names == ("shift", "rotation", "scale", "shear", "contrast", "brightness", "blur")


def test_the_seven_are_drawn_alike() -> None:
    counts = np.bincount(draw(10_000).kind, minlength=7)
    expected = 10_000 / 7
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-squared with 6 degrees of freedom, p = 0.001


def test_parameters_belong_to_their_operator() -> None:
    draws = draw(10_000)
    limits = {"shift": (0.05, 0.15), "rotation": (5, 25), "scale": (0.8, 1.2), "shear": (15, 30), "contrast": (0.5, 1.5)}
    limits |= {"brightness": (0.5, 1.5), "blur": (2, 7)}
    for number, name in enumerate(draws.names):
        mine = np.abs(draws.parameters[draws.kind == number])
        low, high = limits[name]
        assert (mine[:, 0] >= low).all()
        assert (mine[:, 0] <= high).all()
        assert (mine[:, 1] > 0).all() if name == "shift" else (mine[:, 1] == 0).all()


def test_draws_are_a_function_of_the_stream() -> None:
    assert np.array_equal(draw(50, 3).parameters, draw(50, 3).parameters)
    assert not np.array_equal(draw(50, 3).parameters, draw(50, 4).parameters)


@settings(max_examples=20, deadline=None)
@given(mutations=st.sampled_from([NSS, POOL]), seed=st.integers(0, 1000), n=st.integers(1, 20), channels=st.sampled_from([1, 3]))
def test_a_described_draw_replays_to_equal_pixels(mutations: NssMutations, seed: int, n: int, channels: int) -> None:
    """Through JSON, as a run stores it."""
    draws, x = draw(n, seed), pictures(n, seed, channels)
    described = json.loads(json.dumps([draws.describe(i) for i in range(n)]))
    assert torch.equal(chains.replay(mutations, x, [chains.read([one]) for one in described]), mutations.apply(x, draws))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
@example(seed=368)  # a rotation whose matrix was rounded by the batch
def test_a_batch_equals_its_items_one_by_one(seed: int) -> None:
    """An item replayed alone must have the pixels, and so the content id, it had in its batch."""
    draws, x = draw(24, seed), pictures(24, seed, 3, 32)
    together = NSS.apply(x, draws)
    for i in range(24):
        assert torch.equal(NSS.apply(x[i : i + 1], draws[i : i + 1]), together[i : i + 1]), draws.describe(i)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), channels=st.sampled_from([1, 3]))
def test_results_are_what_eight_bits_hold(seed: int, channels: int) -> None:
    x = pictures(30, seed, channels)
    out = NSS.apply(x, draw(30, seed))
    eight = (out * 255).round().to(torch.uint8)
    assert torch.equal(eight.float().div(255), out)  # exactly what reading the saved image gives
    assert out.min() >= 0
    assert out.max() <= 1
    assert not torch.equal(out, x)


def test_each_item_gets_its_own_operator() -> None:
    described = [
        {"operator": "contrast", "parameters": [0.5, 0.0]},
        {"operator": "brightness", "parameters": [1.5, 0.0]},
        {"operator": "shift", "parameters": [2 / 12, -1 / 12]},
    ]
    x = pictures(3)
    out = chains.replay(POOL, x, [chains.read([one]) for one in described])
    assert torch.equal(out[0], EIGHT.nearest(x[0] * 0.5))
    assert torch.equal(out[1], EIGHT.nearest(x[1] + 0.25))
    assert torch.allclose(out[2, :, :-1, 2:], x[2, :, 1:, :-2], atol=1e-6)
    assert float(out[2, :, -1].max()) == float(out[2, :, :, :2].max()) == 0


def test_drawing_for_nobody() -> None:
    assert len(draw(0)) == 0
    assert NSS.apply(pictures(0), draw(0)).shape == (0, 1, 12, 12)


# -- refusals


def test_only_images_can_be_mutated() -> None:
    with refused("unsuitable", "shape"):
        NSS.apply(torch.zeros(2, 5), draw(2))


def test_draws_must_fit_the_batch() -> None:
    with refused("wrong-count", "draws"):
        NSS.apply(pictures(3), draw(2))
    other = Draws(("blur", "noise"), np.zeros(3, np.int8), np.zeros((3, 2)))
    with refused("wrong-count", "draws"):
        NSS.apply(pictures(3), other)


@pytest.mark.parametrize(
    ("record", "refusal"),
    [
        ({"operator": "warp", "parameters": [1, 2]}, ("unknown-name", "mutation")),
        ({"operator": "blur"}, ("damaged", "mutation")),
        ({"operator": "shift", "parameters": [0.1]}, ("damaged", "parameters")),
        ({"operator": "blur", "parameters": [3, 1]}, ("damaged", "parameters")),
        ("blur", ("damaged", "mutation")),
        ({}, ("damaged", "mutation")),
    ],
    ids=str,
)
def test_records_that_cannot_be_replayed(record: object, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        chains.replay(NSS, pictures(1), [chains.read([record])])


def test_bad_settings() -> None:
    with refused("out-of-range", "rounding"):
        NssMutations(rounding="up")  # type: ignore[arg-type]
    with refused("wrong-type", "operators"):
        registry.build("mutation", repr(NSS))


# -- as a fuzzer draws them


def test_uniform_numbers_give_the_distribution_that_a_generator_gives() -> None:
    by_number = NSS.draw_from(rng.stream("test.uniforms", 0).random((40_000, 3)))
    by_stream = draw(40_000)
    for number, name in enumerate(NSS.names):
        columns = NSS.find(name).columns
        first, second = (d.parameters[d.kind == number][:, :columns] for d in (by_number, by_stream))
        assert len(first) == pytest.approx(40_000 / 7, rel=0.06)
        for share in (0.02, 0.25, 0.5, 0.75, 0.98):
            width = np.ptp(second, axis=0)
            here, there = np.quantile(first, share, axis=0), np.quantile(second, share, axis=0)
            jump = (name in ("shift", "rotation", "shear") and share == 0.5) or name == "blur"  # no value lies in the middle
            assert jump or (np.abs(here - there) < 0.04 * width).all(), (name, share)
    assert set(by_number.parameters[by_number.kind == NSS.names.index("blur")][:, 0]) == {2, 3, 5, 7}
    assert (by_number.rule == -1).all()


def test_signed_ranges_by_hand() -> None:
    rows = Rotation(low=5, high=25).at(np.array([[0.0, 0.0], [0.25, 0.0], [0.5, 0.0], [0.75, 0.0]]))
    assert rows[:, 0].tolist() == [-5, -15, 5, 15]


def test_affine_ones_are_drawn_once_per_lineage() -> None:
    draws = NSS.draw_from(rng.stream("test.once", 0).random((300, 3)), np.ones(300, dtype=bool))
    assert {NSS.names[kind] for kind in draws.kind} == {"contrast", "brightness", "blur"}


def test_milder_changes_lie_between_a_change_and_none() -> None:
    for name, row, neutral in (
        ("rotation", (-20.0,), 0),
        ("brightness", (1.4,), 1),
        ("contrast", (0.5,), 1),
        ("blur", (7.0,), 1),
    ):
        milder = [values[0] for values in NSS.find(name).milder(row)]
        apart = [abs(value - neutral) for value in milder]
        assert milder
        assert apart == sorted(apart)
        assert apart[0] > 0
        assert apart[-1] < abs(row[0] - neutral)
    assert list(NSS.find("blur").milder((2.0,))) == []


def test_steps_leave_out_unused_columns() -> None:
    kind = np.array([NSS.names.index("rotation"), NSS.names.index("shift")], dtype=np.int8)
    draws = Draws(NSS.names, kind, np.array([[12.0, 0.0], [0.1, -0.1]]))
    steps: list[Chain] = [(chains.step(NSS, draws, i),) for i in range(2)]
    assert steps == [(Mutation("rotation", (12.0,)),), (Mutation("shift", (0.1, -0.1)),)]
    assert torch.equal(chains.replay(NSS, pictures(2), steps), NSS.apply(pictures(2), draws))


@pytest.mark.parametrize("name", ["nss", "mild"])
def test_a_campaign_with_them_is_replayed_and_shrunk(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    neurotest.fuzz("zoo:mnist-lenet1", "zoo:mnist/test[:40]", "random", forwards=400, mutations=name, out=path)
    with Run.open(path) as run:
        faults = [number for (number,) in run.rows("SELECT number FROM mutant WHERE oracle IS NOT NULL")]
    assert len(faults) > 3
    replayed = [replay(f"{path}#{number}") for number in faults]
    assert all(one.same_values and one.fails for one in replayed)
    families = shrink(path)["families"]
    assert sum(one["l2_after"] for one in families) < sum(one["l2_before"] for one in families)


def test_old_names_of_the_kind_still_list_them(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("mutation", "mutations", "mutation-set", "mutation-spaces"):
        list_kind(kind=kind, json=True)
        assert {"nss", "rules95"} <= set(json.loads(capsys.readouterr().out)["mutation"])
