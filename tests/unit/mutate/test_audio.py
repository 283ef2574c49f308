"""Mutations of sound: by hand, against plain loops and scipy, the same alone as in a batch, and on the levels of 16 bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.signal import fftconvolve
from tests.refusals import refused

from neurotest import registry, rng
from neurotest.levels import SIXTEEN
from neurotest.mutate.audible import Audible, _heard, _ratio
from neurotest.mutate.audio import (
    AudioMutations,
    _Background,
    _Band,
    _Clip,
    _Companding,
    _Gain,
    _Reverberation,
    _Speed,
    _taken,
    _TimeShift,
)
from neurotest.mutate.chain import Mutation, draws_of, replay

pytestmark = pytest.mark.by_hand

RULES = AudioMutations()


def waves(n: int, samples: int = 400, seed: int = 0) -> torch.Tensor:
    """(n, 1, samples) tones with some noise, in -1 .. 1."""
    random = np.random.default_rng(seed)
    t = np.arange(samples)
    tones = 0.4 * np.sin(2 * np.pi * random.uniform(0.01, 0.1, (n, 1, 1)) * t) + 0.02 * random.standard_normal((n, 1, samples))
    return torch.from_numpy(tones)


def stored(n: int, samples: int = 400, seed: int = 0) -> torch.Tensor:
    """The same in [0, 1], as 16 bits hold them."""
    return SIXTEEN.nearest((waves(n, samples, seed).float() + 1) / 2)


def applied(operator, x: torch.Tensor, *rows: tuple[float, ...]) -> torch.Tensor:
    """Waves in -1 .. 1 out of waves in -1 .. 1."""
    return operator.apply((x + 1) / 2, torch.tensor(rows, dtype=torch.float64)) * 2 - 1


def test_gain_by_hand() -> None:
    out = applied(_Gain(), torch.tensor([[0.1, -0.2]], dtype=torch.float64), (20.0,))
    assert_allclose(out.numpy(), [[1.0, -2.0]], atol=1e-12)


def test_shift_and_clipping_by_hand() -> None:
    x = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5]], dtype=torch.float64)
    assert_allclose(applied(_TimeShift(), x, (0.4,)).numpy(), [[0, 0, 0.1, 0.2, 0.3]], atol=1e-12)
    assert_allclose(applied(_TimeShift(), x, (-0.2,)).numpy(), [[0.2, 0.3, 0.4, 0.5, 0]], atol=1e-12)
    assert_allclose(applied(_Clip(), -x, (0.5,)).numpy(), [[-0.1, -0.2, -0.25, -0.25, -0.25]], atol=1e-12)


def test_speed_against_a_plain_loop() -> None:
    x, factor = waves(1, 50)[:, 0], 1.1
    out = applied(_Speed(), x, (factor,))[0]
    for i in range(50):
        place = 24.5 + (i - 24.5) * factor
        first = math.floor(place)
        a, b, c, d = (float(x[0, at]) if 0 <= at < 50 else 0.0 for at in range(first - 1, first + 3))
        t = place - first
        cubic = b + t * (c - a) / 2 + t**2 * (a - 2.5 * b + 2 * c - d / 2) + t**3 * (-a + 3 * b - 3 * c + d) / 2
        assert float(out[i]) == pytest.approx(cubic, abs=1e-12)


def test_a_cubic_is_followed_exactly_between_samples() -> None:
    t = torch.arange(20, dtype=torch.float64)[None]
    line = 0.01 * t + 0.1
    assert_allclose(_taken(line, t[:, 2:-3] + 0.3).numpy(), (0.01 * (t[:, 2:-3] + 0.3) + 0.1).numpy(), atol=1e-12)


@pytest.mark.parametrize("slope", [0.0, 1.0])
@pytest.mark.parametrize("decibels", [30.0, 10.0])
def test_noise_has_the_ratio_it_says(slope: float, decibels: float) -> None:
    x = waves(3)
    added = applied(_Background(slope), x, *[(decibels, float(number)) for number in range(3)]) - x
    ratios = 10 * torch.log10(x.square().mean((1, 2)) / added.square().mean((1, 2)))
    assert_allclose(ratios.numpy(), decibels, atol=1e-9)
    assert len({tuple(one.flatten().tolist()) for one in added}) == 3


def test_pink_noise_falls_with_frequency() -> None:
    x = waves(1, 8192)
    spectra = [
        np.abs(np.fft.rfft((applied(_Background(slope), x, (0.0, 7.0)) - x).flatten().numpy())) ** 2 for slope in (0.0, 1.0)
    ]
    shares = [spectrum[1:200].sum() / spectrum[200:].sum() for spectrum in spectra]
    assert shares[1] > 5 * shares[0]


def test_filters_against_their_formula() -> None:
    t = np.arange(1000)
    for bin_ in (20, 100, 250, 400):
        x = torch.from_numpy(0.5 * np.cos(2 * np.pi * bin_ * t / 1000))[None]
        share = bin_ / 500
        for operator, value, expected in (
            (_Band(), 0.45, 1 / math.sqrt(1 + (share / 0.45) ** 8)),
            (_Band(above=True), 0.12, 1 / math.sqrt(1 + (0.12 / share) ** 8)),
        ):
            assert_allclose(applied(operator, x, (value,)).numpy(), expected * x.numpy(), atol=1e-9)


def test_reverberation_against_scipy() -> None:
    x = waves(1, 300)[:, 0]
    out = applied(_Reverberation(0.3), x, (0.4, 5.0))[0].numpy()
    echoes = next(iter(rng.streams("mutate.room", [5]))).standard_normal(300) * 10 ** (-3 * np.arange(300) / 90)
    echoes[0] = 0
    room = 0.4 * echoes / np.sqrt((echoes**2).sum())
    room[0] = 1.0
    assert_allclose(out, fftconvolve(x[0].numpy(), room)[:300], atol=1e-9)


def test_companding_by_hand_and_by_its_levels() -> None:
    x = torch.tensor([[0.0, 1.0, -1.0, 0.5]], dtype=torch.float64)
    out = applied(_Companding(), x, (5.0,))[0].tolist()
    level = round(16 * math.log1p(127.5) / math.log1p(255)) / 16
    assert out == pytest.approx([0.0, 1.0, -1.0, math.expm1(level * math.log1p(255)) / 255], abs=1e-12)
    many = applied(_Companding(), waves(1, 4000)[:, 0].clamp(-1, 1), (5.0,))
    assert len(many.unique()) <= 33


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_mutants_are_on_levels_and_the_same_alone_as_in_a_batch(seed: int, axis: bool) -> None:
    x = stored(6, seed=seed % 7)
    x = x if axis else x[:, 0]
    draws = RULES.draw(rng.stream("test", seed), 6)
    together = RULES.apply(x, draws, levels=SIXTEEN)
    assert together.dtype == x.dtype
    assert torch.equal(SIXTEEN.nearest(together), together)
    for i in range(6):
        assert torch.equal(RULES.apply(x[i : i + 1], draws[np.array([i])], levels=SIXTEEN), together[i : i + 1])


@pytest.mark.parametrize("family", RULES.families, ids=lambda family: family.name)
def test_every_family_changes_something_and_its_neutral_row_nothing(family) -> None:
    x = stored(2)
    numbers = (1.0,) if family.seeded else ()
    changed = replay(RULES, x, [(Mutation(family.name, (*family.rules[-1], *numbers)),)] * 2, levels=SIXTEEN)
    assert not torch.equal(changed, x)
    same = replay(RULES, x, [(Mutation(family.name, (*family.neutral, *numbers)),)] * 2, levels=SIXTEEN)
    # sixteen bits of companding are coarser than sixteen even ones where a sound is loud
    assert float((same - x).abs().max()) <= (2e-4 if family.name == "companding" else 0)


def test_chains_are_replayed() -> None:
    x = stored(1)
    chain = (Mutation("noise", (15.0, 3.0)), Mutation("speed", (1.1,)), Mutation("gain", (-6.0,)))
    step = x
    for one in chain:
        step = RULES.apply(step, draws_of(RULES, [one]), levels=SIXTEEN)
    assert torch.equal(replay(RULES, x, [chain], levels=SIXTEEN), step)


def test_pictures_and_sounds_are_not_mixed_up() -> None:
    with refused("unsuitable", "shape"):
        RULES.check((1, 28, 28))
    with refused("unsuitable", "shape"):
        registry.build("mutation", "rules95").check((1, 400))
    RULES.check((400,))


def test_sixteen_mild_variants_stay_valid() -> None:
    x = stored(2, 4000)
    variants = list(AudioMutations().mild_variants(x, SIXTEEN))
    assert len(variants) == 16
    still = [i for i in range(16) if i not in (1, 4, 10, 11)]  # shifts and speeds are beyond both measures
    assert all(bool(Audible().check(variants[i], x).all()) for i in still)


def test_ratio_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    y = torch.tensor([[2.0, 0.2, 0.0, 0.0]])  # twice as loud, and a tenth of that beside it
    assert float(_ratio(y, x)) == pytest.approx(20.0, abs=1e-6)


def test_what_is_heard_does_not_depend_on_volume() -> None:
    x = waves(2, 4000)[:, 0]
    assert_allclose(_heard(0.25 * x, x).numpy(), 0, atol=0.05)
    soft, loud = (
        _heard(x + size * torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4000))), x) for size in (0.01, 0.3)
    )
    assert bool((loud > soft + 3).all())


def test_validity() -> None:
    x = stored(1, 4000)
    noisy = [replay(RULES, x, [(Mutation("noise", (decibels, 1.0)),)], levels=SIXTEEN) for decibels in (10.0, -10.0)]
    rule = Audible()
    assert [bool(rule.check(one, x)[0]) for one in noisy] == [True, False]
    with refused("out-of-range", "distance"):
        Audible(distance=-1)
