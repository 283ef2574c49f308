"""Random streams are functions of their arguments and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neurotest import rng


@given(purpose=st.text(max_size=20), seed=st.integers(-(2**70), 2**70), step=st.lists(st.integers(0, 2**40), max_size=3))
def test_equal_arguments_give_equal_draws(purpose: str, seed: int, step: list[int]) -> None:
    first, second = (rng.stream(purpose, seed, *step).integers(0, 2**63, 8) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("other", [("b", 0, 0), ("a", 1, 0), ("a", 0, 1), ("a", 0), ("a", 0, 0, 0)])
def test_any_other_argument_gives_other_draws(other: tuple[str, ...]) -> None:
    draws = rng.stream("a", 0, 0).random(8)
    assert not np.array_equal(draws, rng.stream(*other).random(8))
    words = torch.rand(8, generator=rng.torch_stream("a", 0, 0))
    assert not torch.equal(words, torch.rand(8, generator=rng.torch_stream(*other)))


def test_torch_streams_repeat() -> None:
    first, second = (torch.rand(8, generator=rng.torch_stream("a", 3, 1)) for _ in range(2))
    assert torch.equal(first, second)


def test_numpy_integers_are_seeds_too() -> None:
    assert rng.stream("a", np.int64(3)).random() == rng.stream("a", 3).random()


def test_streams_are_equal_in_every_process_and_version() -> None:
    """Pools, samples and campaigns rest on these numbers: another key or generator would change them all."""
    assert rng.stream("pool.nss", 7, 2).integers(0, 2**63, 2).tolist() == [4202318562368462152, 8463164950411423892]
    words = torch.randint(0, 2**40, (2,), generator=rng.torch_stream("pool.nss", 7, 2))
    assert words.tolist() == [695908802542, 535373358877]


def test_the_global_generators_are_left_alone() -> None:
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
    rng.stream("a", 0).random(5)
    torch.rand(5, generator=rng.torch_stream("a", 0))
    assert np.array_equal(before[0], np.random.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


def test_a_torch_stream_uses_all_bits_it_can() -> None:
    """torch keeps 32 bits of a seed: those after the lowest of the key, the highest of them in its fifth byte."""
    highest = [rng.torch_stream("bits", step).initial_seed() >> 31 & 1 for step in range(64)]
    assert 16 <= sum(highest) <= 48
    assert all(0 <= rng.torch_stream("bits", step).initial_seed() < 2**63 for step in range(64))
    assert max(rng.torch_stream("bits", step).initial_seed() for step in range(64)) > 2**61


@given(purpose=st.text(max_size=20), seeds=st.lists(st.integers(-(2**70), 2**70), max_size=5))
def test_many_streams_are_those_of_each_seed(purpose: str, seeds: list[int]) -> None:
    """Whatever was drawn from the one before: doubles, single normals, or an odd number of 32-bit words."""
    for seed, random in zip(seeds, rng.streams(purpose, seeds), strict=True):
        alone = rng.stream(purpose, seed)
        assert random.random(3).tolist() == alone.random(3).tolist()
        assert random.standard_normal(5, dtype=np.float32).tolist() == alone.standard_normal(5, dtype=np.float32).tolist()
        assert random.integers(0, 7, 3, dtype=np.uint32).tolist() == alone.integers(0, 7, 3, dtype=np.uint32).tolist()
