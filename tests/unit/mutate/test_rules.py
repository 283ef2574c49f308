"""Rule spaces, validity, style and chains of the fuzzers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.mutate import chain as chains
from neurotest.mutate.base import Mutations
from neurotest.mutate.chain import REGION, Mutation
from neurotest.mutate.mild import CHANGES, MildMutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.rules import DeepHunterMutations, Rules95, Rules98, TensorFuzzMutations
from neurotest.mutate.style import AdaIN, StyleImages, _generated_style, fourier, lab, textured
from neurotest.mutate.validity import Validity

pytestmark = pytest.mark.by_hand

EVERY = [Rules95(), Rules98(), DeepHunterMutations(), NssMutations(), MildMutations(), TensorFuzzMutations()]


def images(n: int, channels: int = 1, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).integers(0, 256, (n, channels, 14, 14))
    return torch.from_numpy(drawn).float() / 255


def uniforms(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3))


def one(mutations: Mutations, name: str, x: torch.Tensor, *parameters: float) -> torch.Tensor:
    return chains.replay(mutations, x, [(Mutation(name, parameters),)] * len(x))


def test_rules95_has_71_affine_and_24_pixel_rules_and_rules98_three_more() -> None:
    mutations = Rules95()
    assert sum(len(f.rules) for f in mutations.families if f.once) == 71
    assert sum(len(f.rules) for f in mutations.families if not f.once) == 24
    assert sum(len(f.rules) for f in Rules98().families) == 98
    assert mutations.find("contrast").rules[-1][0] == pytest.approx(2.0)
    assert mutations.find("brightness").rules == ((10,), (20,), (30,), (40,), (50,), (60,), (70,))


def test_rules_do_what_they_say() -> None:
    mutations, x = Rules95(), images(2)
    assert torch.equal(one(mutations, "translation", x, 5.0, 0.0)[..., 5:], x[..., :-5])
    assert one(mutations, "translation", x, 5.0, 0.0)[..., :5].abs().sum() == 0
    assert torch.equal(one(mutations, "brightness", x, 30.0), (x * 255 + 30).clamp(max=255).round() / 255)
    assert torch.allclose(one(mutations, "contrast", x, 2.0), (2 * x).clamp(max=1), atol=1e-6)
    assert torch.equal(one(mutations, "rotation", x, 0.0), x)
    white = one(mutations, "scale", x, 0.8)
    assert bool((white[..., 0, :] > 0.95).all())
    assert bool((one(Rules95(white=False), "scale", x, 0.8)[..., 0, :] < 0.05).all())


def test_mean_blur_rounds_halves_up_whatever_the_batch() -> None:
    x = images(40)
    whole = one(Rules95(), "blur", x, 2.0)
    assert all(torch.equal(one(Rules95(), "blur", x[i : i + 1], 2.0)[0], whole[i]) for i in range(40))


@pytest.mark.parametrize("number", range(1, 11))
def test_every_blur_smooths(number: int) -> None:
    x = images(3)
    out = one(Rules95(), "blur", x, float(number))
    assert out.shape == x.shape
    assert float(out.std()) < float(x.std())


def test_families_equally_often_or_rules_equally_often() -> None:
    by_family = Rules95().draw_from(uniforms(6000))
    assert np.bincount(by_family.kind, minlength=6).min() > 850
    by_rule = Rules95(choice="rule").draw_from(uniforms(6000))
    assert (by_rule.kind == 2).mean() == pytest.approx(60 / 95, abs=0.03)


@pytest.mark.parametrize("mutations", EVERY[:-1], ids=registry.text)
def test_affine_once_per_lineage(mutations: Mutations) -> None:
    draws = mutations.draw_from(uniforms(500), np.ones(500, dtype=bool))
    assert not mutations.once[draws.kind].any()


@pytest.mark.parametrize("mutations", EVERY, ids=registry.text)
@pytest.mark.parametrize("channels", [1, 3])
def test_chains_replay_value_for_value_alone_and_in_a_batch(mutations: Mutations, channels: int) -> None:
    x, draws = images(60, channels), mutations.draw_from(uniforms(60))
    mutants = mutations.apply(x, draws, root=x)
    assert torch.equal(mutants, (mutants * 255).round() / 255)
    kept = [chains.read(chains.plain((chains.step(mutations, draws, i),))) for i in range(60)]
    assert torch.equal(chains.replay(mutations, x, kept), mutants)
    for i in range(0, 60, 7):
        assert torch.equal(chains.replay(mutations, x[i : i + 1], kept[i : i + 1])[0], mutants[i])


@pytest.mark.parametrize("name", sorted(set(registry.entries("mutation")) - {"audio"}))
@pytest.mark.parametrize(("channels", "size"), [(1, 14), (1, 28), (3, 33)])
def test_fractions_replay_value_for_value_in_every_batch(name: str, channels: int, size: int) -> None:
    """Values that no file rounds keep their last bit, or a mutant made again would not be known as itself."""
    mutations = registry.build("mutation", name)
    x = torch.from_numpy(np.random.default_rng(2).random((60, channels, size, size), dtype=np.float32))
    draws = mutations.draw_from(uniforms(60))
    mutants = mutations.apply(x, draws, root=x, levels=None)
    assert mutants.dtype == x.dtype
    kept = [chains.read(chains.plain((chains.step(mutations, draws, i),))) for i in range(60)]
    for batch in (1, 7):
        parts = [chains.replay(mutations, x[i : i + batch], kept[i : i + batch], levels=None) for i in range(0, 60, batch)]
        assert torch.equal(torch.cat(parts), mutants)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 4))
def test_deep_chains_replay(seed: int, depth: int) -> None:
    mutations, root = Rules98(), images(4, seed=seed % 7)
    x, used, kept = root, np.zeros(4, dtype=bool), [()] * 4
    for step in range(depth):
        draws = mutations.draw_from(uniforms(4, seed + step), used)
        x = mutations.apply(x, draws, root=root)
        used |= mutations.once[draws.kind]
        kept = [(*chain, chains.step(mutations, draws, i)) for i, chain in enumerate(kept)]
    assert torch.equal(chains.replay(mutations, root, kept), x)


def test_a_region_restores_the_seed_around_it() -> None:
    x = images(1)
    chain = (Mutation("brightness", (70.0,)), Mutation(REGION, (2.0, 3.0, 4.0, 5.0)))
    out = chains.replay(Rules95(), x, [chain])
    changed = (out != x)[0, 0]
    assert changed[2:6, 3:8].any()
    changed[2:6, 3:8] = False
    assert not changed.any()
    assert chains.words(chain) == "brightness 70, region 2 3 4 5"


def test_validity_is_or_by_default_and_measured_against_the_values_that_are_not_zero() -> None:
    reference = torch.zeros(1, 1, 10, 10)
    reference[..., :5, :] = 0.2  # 50 values that are not 0
    few = reference.clone()
    few[0, 0, 9, :9] = 1.0  # 9 values, by 1.0
    assert Validity().check(few, reference).tolist() == [True]  # 9 < 0.2 * 50
    few[0, 0, 8, :1] = 1.0
    assert Validity().check(few, reference).tolist() == [False]
    assert Validity(l0_base="size").check(few, reference).tolist() == [True]
    many = reference + 0.4
    assert Validity().check(many, reference).tolist() == [True]
    assert Validity(mode="and").check(many, reference).tolist() == [False]
    assert Validity().check(reference + 0.41, reference).tolist() == [False]


def test_pixels_are_counted_once_though_all_channels_change() -> None:
    reference = torch.full((1, 3, 4, 4), 0.5)
    mutant = reference.clone()
    mutant[:, :, 0, :3] = 1.0  # 3 pixels, 9 values of 48
    assert Validity(alpha=0.19, beta=0).check(mutant, reference).tolist() == [True]
    assert Validity(alpha=0.18, beta=0, l0_unit="pixel").check(mutant, reference).tolist() == [False]


@pytest.mark.parametrize("mutations", EVERY[:3] + EVERY[-1:], ids=registry.text)
def test_runs_that_store_the_repr_are_read(mutations: Mutations) -> None:
    for name in (type(mutations).__name__, *mutations.formerly):
        stored = repr(mutations).replace(type(mutations).__name__, name)
        assert registry.build("mutation", stored) == mutations
    assert registry.build("mutation", registry.text(mutations)) == mutations


def test_every_mutation_is_of_one_kind() -> None:
    entries = registry.entries("mutation")
    assert set(entries) == {
        "rules95",
        "rules98",
        "deephunter",
        "tensorfuzz",
        "nss",
        "mild",
        "views",
        "corruptions",
        "audio",
        "weather",
    }
    assert all(isinstance(registry.build("mutation", name), Mutations) for name in entries)


def test_mild_variants_are_its_rules_in_turn() -> None:
    x, mild = images(3), MildMutations()
    assert sum(len(family.rules) for family in mild.families) == len(CHANGES) == 16
    for changed, change in zip(mild.variants(x), CHANGES, strict=True):
        assert torch.equal(changed, one(mild, change.operator, x, *change.parameters))


@pytest.mark.parametrize(
    ("name", "row", "milder"),
    [
        ("blur", (5.0,), [(1.0,), (4.0,), (7.0,), (2.0,)]),
        ("blur", (1.0,), []),
        ("translation", (5.0, 0.0), [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (2.0, 0.0)]),
        ("brightness", (10.0,), [(1.0,), (1.0,), (2.0,)]),
    ],
)
def test_milder_rules_begin_with_the_mildest(name: str, row: tuple[float, ...], milder: list[tuple[float, ...]]) -> None:
    values = list(Rules95().find(name).milder(row))
    assert values[: len(milder)] == milder
    assert row not in values


def test_kinds_of_noise_have_no_order_but_a_spread_has() -> None:
    assert list(DeepHunterMutations().find("noise").milder((2.0, 77.0))) == []
    spreads = list(TensorFuzzMutations().find("noise").milder((0.16, 77.0)))
    assert len(spreads) == 15
    assert spreads[0] == pytest.approx((0.01, 77.0))


def test_presets() -> None:
    assert registry.build("validity", "valid:preset=nlc-code").alpha == 0.4
    assert registry.build("validity", "valid:preset=nsgen-paper").mode == "and"
    assert registry.build("validity", "valid:preset=deephunter").beta == 0.2
    assert registry.build("validity", "valid:preset=nsgen-code").check_once


@pytest.mark.parametrize("transfer", [lab, fourier, textured])
def test_style_changes_more_with_strength_and_nothing_without(transfer: object) -> None:
    content = images(2, 3)
    style = torch.stack([_generated_style(3, 14, 14), _generated_style(4, 14, 14)])
    far = [float((transfer(content, style, torch.full((2, 1, 1, 1), s)) - content).abs().mean()) for s in (0.0, 0.4, 0.8)]
    assert far[0] == pytest.approx(0, abs=2e-3)
    assert far[0] < far[1] < far[2]


def test_lab_takes_over_the_styles_mean() -> None:
    content, style = images(1, 3) * 0.4 + 0.3, torch.stack([_generated_style(2, 14, 14)]) * 0.4 + 0.3
    out = lab(content, style, torch.ones(1, 1, 1, 1))
    before, after = ((t.mean((2, 3)) - style.mean((2, 3))).abs().sum() for t in (content, out))
    assert float(after) < float(before)


def test_adain_by_hand() -> None:
    transfer = AdaIN(torch.nn.Identity(), torch.nn.Identity())
    content, style = images(1, 3), images(1, 3, seed=9)
    out = transfer(content, style, torch.ones(1, 1, 1, 1))
    assert torch.allclose(out.mean((2, 3)), style.mean((2, 3)), atol=1e-5)
    assert torch.allclose(out.std((2, 3)), style.std((2, 3)), atol=1e-3)
    assert torch.allclose(transfer(content, style, torch.zeros(1, 1, 1, 1)), content)
    mutations = Rules98(transfers=(transfer,))
    assert one(mutations, "style", content, 0.8, 5.0).shape == content.shape


def test_style_images_of_a_folder(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from PIL import Image

    for name in ("a", "b"):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    assert len(StyleImages.of(str(tmp_path))) == 2
    out = one(Rules98(styles=str(tmp_path)), "style", images(2, 3), 0.6, 7.0)
    assert out.shape == (2, 3, 14, 14)


def test_tensorfuzz_constraint_holds_against_the_seed() -> None:
    mutations, x = TensorFuzzMutations(constraint=0.1), images(5)
    out = mutations.apply(x, mutations.draw_from(uniforms(5)), root=x)
    assert float((out - x).abs().max()) <= 0.1 + 2 / 255
    vectors = torch.rand(3, 7)
    assert TensorFuzzMutations().apply(vectors, mutations.draw_from(uniforms(3)), levels=None).shape == (3, 7)


@pytest.mark.parametrize(
    ("text", "code", "argument"),
    [
        ("rules95:choice=all", "wrong-type", "choice"),
        ("rules97", "unknown-name", "mutation"),
        ("tensorfuzz:sigma=0", "out-of-range", "sigma"),
        ("tensorfuzz:constraint=-1", "out-of-range", "constraint"),
    ],
)
def test_bad_options(text: str, code: str, argument: str) -> None:
    with refused(code, argument):
        registry.build("mutation", text)


def test_bad_validity_and_bad_chains() -> None:
    for options in ({"alpha": 2}, {"beta": "x"}, {"mode": "xor"}, {"l0_unit": "byte"}):
        with pytest.raises(BadInput):
            Validity(**options)
    bad: list[Any] = [None, [{}], [{"operator": "blur", "parameters": ["x"]}], [{"operator": "a", "parameters": [float("inf")]}]]
    for content in bad:
        with refused("damaged", "mutation"):
            chains.read(content)
    with refused("unknown-name", "mutation"):
        one(Rules95(), "melt", images(1), 1.0)
    with refused("damaged", "parameters"):
        one(Rules95(), "blur", images(1), 1.0, 2.0)
    with refused("unsuitable", "shape"):
        Rules95().check((7,))
