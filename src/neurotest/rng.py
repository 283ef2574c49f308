"""Random streams: one per purpose, a pure function of (purpose, seed, step), never global.

There is no generator state to save: whoever resumes at step 12 asks for step 12's stream.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _key(purpose: str, seed: int, step: tuple[int, ...]) -> bytes:
    words = ":".join([purpose, *(str(int(part)) for part in (seed, *step))])
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


def stream(purpose: str, seed: int, *step: int) -> np.random.Generator:
    """The numpy generator of this purpose at this step: equal arguments give equal draws."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_key(purpose, seed, step), "little")))


def torch_stream(purpose: str, seed: int, *step: int) -> torch.Generator:
    """The same for torch, on the CPU."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(_key(purpose, seed, step)[:8], "little") >> 1)
    return generator
