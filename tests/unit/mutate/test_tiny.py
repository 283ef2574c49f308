"""Images of one and of four pixels: every mutation set makes mutants of them."""

from __future__ import annotations

import pytest
import torch

from neurotest.mutate.operators import Blur


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 9])
def test_every_blur_on_images_smaller_than_its_window(side: int) -> None:
    x = torch.rand(10, 1, side, side, generator=torch.Generator().manual_seed(0))
    numbers = torch.arange(1.0, 11.0)[:, None]
    out = Blur().apply(x, numbers)
    assert out.shape == x.shape
    assert out.isfinite().all()
    assert torch.allclose(Blur().apply(torch.full_like(x, 0.5), numbers)[..., side // 2, side // 2], torch.tensor(0.5), atol=1e-5)
