"""What a network raises while it runs, told apart from faults of our own hooks that run inside it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from neurotest.errors import BadInput

_PACKAGE = Path(__file__).resolve().parents[1]
_NETWORKS = (_PACKAGE / "zoo", _PACKAGE / "target" / "parts.py")  # code of ours that is a network
_TORCH = Path(torch.__file__).resolve().parent
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")


class ForwardError(BadInput):
    """The network raised something while it ran."""


def ours(error: BaseException) -> bool:
    """Whether the error comes from neurotest's own code, called by a hook: that is a bug, and not the network's."""
    files: list[Path] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        files.append(Path(trace.tb_frame.f_code.co_filename))
        trace = trace.tb_next
    last = next((file for file in reversed(files[1:]) if not file.is_relative_to(_TORCH)), None)
    return last is not None and last.is_relative_to(_PACKAGE) and not any(last.is_relative_to(place) for place in _NETWORKS)


def out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY))


def failure(error: BaseException, x: Tensor) -> str:
    """One sentence about what a network raised on a batch."""
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}{f': {lines[0][:300]}' if lines else ''}"
    if out_of_memory(error):
        return f"there is not enough memory to run the network on {len(x)} inputs at a time ({what}): use a smaller --batch"
    return f"the network raised {what} on a batch of shape {tuple(x.shape)}"
