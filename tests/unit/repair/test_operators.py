"""Operator families: each item is changed as if it were alone, subsets keep their draws apart."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.repair.subjects import SHAPE, bars

from neurotest.levels import EIGHT
from neurotest.repair.operators import Operators, stored, unit

EVERY = Operators.of_shape(SHAPE)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 99), n=st.integers(1, 9))
def test_a_batch_is_changed_item_by_item(seed: int, n: int) -> None:
    x = unit(bars(n, 0).read(np.arange(n)), (0.0, 1.0))
    changes = EVERY.draw_any(np.random.default_rng(seed), n)
    together = EVERY.apply(x, changes, levels=EIGHT)
    alone = [EVERY.apply(x[i : i + 1], changes[np.array([i])], levels=EIGHT) for i in range(n)]
    assert torch.equal(together, torch.cat(alone))


def test_thirteen_for_pictures_and_noise_for_everything_else() -> None:
    assert len(EVERY) == 13
    assert "jpeg" not in Operators.of_shape((4, 9, 9)).names
    assert Operators.of_shape((20,)).names == ("noise",)


def test_without_and_only_are_complements() -> None:
    some = ("blur", "fog")
    assert set(EVERY.without(some).names) | set(EVERY.only(some).names) == set(EVERY.names)
    assert EVERY.only(some).names == some
    assert EVERY.names.index("blur") < EVERY.names.index("fog")


def test_the_named_operator_is_what_is_applied() -> None:
    """A subset numbers its operators anew: fog makes one grey of every picture, blur does not."""
    fog = EVERY.only(("fog",))
    pool, changes = fog.pool(bars(5, 0), 0, (0.0, 1.0), "test")
    x, kept = bars(5, 0).read(np.arange(5)) / 255, changes.parameters
    by_hand = kept[:, :1, None, None] * x + (1 - kept[:, :1, None, None]) * kept[:, 1:2, None, None]
    assert np.abs(pool.read(np.arange(5)) / 255 - by_hand).max() <= 0.51 / 255
    assert pool.originals is not None


def test_floating_point_inputs_stay_in_their_bounds() -> None:
    x = np.linspace(-2, 3, 2 * 81, dtype=np.float32).reshape(2, *SHAPE)
    there = stored(unit(x, (-2.0, 3.0)), x, (-2.0, 3.0))
    assert there.dtype == np.float32
    assert np.allclose(there, x, atol=1e-5)


def test_a_milder_change_is_so_much_of_it() -> None:
    """A quarter of the way from no change: fog keeps more, JPEG has a better quality, nothing of it changes nothing."""
    changes = EVERY.draw_any(np.random.default_rng(0), 60)
    mild, none = EVERY.milder(changes, 0.25), EVERY.milder(changes, 0.0)
    fog, jpeg = (changes.kind == EVERY.names.index(name) for name in ("fog", "jpeg"))
    assert np.allclose(mild.parameters[fog, 0], 1 - 0.25 * (1 - changes.parameters[fog, 0]))
    assert np.array_equal(mild.parameters[jpeg, 0], np.round(100 - 0.25 * (100 - changes.parameters[jpeg, 0])))
    x = unit(bars(60, 0).read(np.arange(60)), (0.0, 1.0))
    still = torch.from_numpy(~jpeg)  # even the best JPEG is no identity
    assert (EVERY.apply(x, none, levels=EIGHT) - x).abs()[still].max() <= 1.01 / 255
