"""What a network raises while it runs, told apart from faults of our own hooks that run inside it; and what has no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from neurotest.errors import BadInput

_PACKAGE = Path(__file__).resolve().parents[1]
# Code of ours that is a network.
_NETWORKS = (_PACKAGE / "zoo", *(_PACKAGE / "target" / name for name in ("parts.py", "operators.py")))
_PASSING = ("__torch_function__", "__torch_dispatch__", "function", "_function")  # ours, around a function of the network
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")


class ForwardError(BadInput):
    """The network raised something while it ran."""


def ours(error: BaseException) -> bool:
    """Whether the error comes from a hook of neurotest, or from what that calls: that is not the network's fault."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None  # below the frame that ran the network
    while trace is not None:
        code = trace.tb_frame.f_code
        file = Path(code.co_filename)
        network = any(file.is_relative_to(place) for place in _NETWORKS)
        if file.is_relative_to(_PACKAGE) and not network and code.co_name not in _PASSING:
            return True
        trace = trace.tb_next
    return False


def failure(error: BaseException, x: Tensor) -> str:
    """One sentence about what a network raised on a batch."""
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}{f': {lines[0][:300]}' if lines else ''}"
    no_memory = isinstance(error, RuntimeError) and any(words in str(error).lower() for words in OUT_OF_MEMORY)
    if no_memory or isinstance(error, MemoryError):
        return f"there is not enough memory to run the network on {len(x)} inputs at a time ({what}): use a smaller --batch"
    return f"the network raised {what} on a batch of shape {tuple(x.shape)}"


NO_GRADIENT = (
    "the network's output has no gradient towards its {}: it detaches, rounds, returns class numbers or runs without gradients "
    "somewhere. Use what needs none (fuzz, select, cover), or a network that can be differentiated."
)
_COMPLAINTS = ("does not require grad", "not have been used in the graph", "does not have a grad_fn")


def gradients(answer: Tensor, tensors: Sequence[Tensor], what: str = "layers") -> tuple[Tensor | None, ...]:
    """Of one number towards each tensor; None for those that it does not depend on, a refusal where that is all of them."""
    try:
        slopes: tuple[Tensor | None, ...] = torch.autograd.grad(answer, tensors, allow_unused=True)
    except RuntimeError as error:
        if not any(complaint in str(error) for complaint in _COMPLAINTS):
            raise
        raise BadInput("no-gradient", "", NO_GRADIENT.format(what)) from error
    if all(slope is None for slope in slopes):
        raise BadInput("no-gradient", "", NO_GRADIENT.format(what))
    return slopes


def gradient(answer: Tensor, tensor: Tensor, what: str = "input") -> Tensor:
    """Of one number towards one tensor."""
    (slope,) = gradients(answer, [tensor], what)
    assert slope is not None
    return slope
