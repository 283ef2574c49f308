"""Pools made by mutation know where they came from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neurotest import registry, rng
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.mutate import chain as chains
from neurotest.mutate import nss
from neurotest.mutate.nss import NssMutations, nss_pool


def source(n: int = 40) -> ArraySource:
    random = rng.stream("test.pool", 0)
    return ArraySource(
        random.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8),
        random.integers(0, 3, n),
        classes=("a", "b", "c"),
        spec="zoo:toy/test",
    )


def test_a_pool_remembers_its_originals_labels_and_draws() -> None:
    test = source()
    pool = nss_pool(source=test, seed=0)
    assert (len(pool), pool.shape, pool.dtype, pool.classes) == (40, (1, 8, 8), np.dtype(np.uint8), ("a", "b", "c"))
    assert np.array_equal(pool.labels, test.labels)
    assert np.array_equal(pool.originals.read(np.arange(40)), test.read(np.arange(40)))
    described = [chains.read([pool.notes["draws"].describe(i)]) for i in range(40)]
    x = torch.from_numpy(test.read(np.arange(40))).float().div(255)
    again = chains.replay(NssMutations(rounding="pool"), x, described)
    assert np.array_equal((again * 255).round().to(torch.uint8).numpy(), pool.read(np.arange(40)))


def test_a_part_of_a_pool_keeps_them_together() -> None:
    pool = nss_pool(source=source(), seed=0)
    part = pool.take(np.array([7, 3]))
    assert np.array_equal(part.originals.read(np.arange(2)), pool.originals.read(np.array([7, 3])))
    assert part.notes["draws"].describe(1) == pool.notes["draws"].describe(3)


def test_a_pool_is_a_function_of_its_seed() -> None:
    first, again, other = (nss_pool(source=source(), seed=seed).ids() for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.mean(first == other) < 0.1


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nss_pool(source=source(), seed=1).ids()
    monkeypatch.setattr(nss, "VALUES_AT_ONCE", 7 * 8 * 8)
    assert np.array_equal(nss_pool(source=source(), seed=1).ids(), whole)


def test_data_that_is_not_eight_bit_is_refused() -> None:
    with pytest.raises(BadInput, match="not 8-bit"):
        nss_pool(source=ArraySource(np.zeros((2, 1, 4, 4), np.float32)), seed=0)


def test_feature_vectors_are_refused() -> None:
    with pytest.raises(BadInput, match="mutations need images"):
        nss_pool(source=ArraySource(np.zeros((2, 4), np.uint8)), seed=0)


def test_it_is_registered_as_a_split() -> None:
    assert registry.find("split", "nss-pool").make is nss_pool
