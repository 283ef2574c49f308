"""How large the network is that a configuration of transformers describes, found out before memory is asked for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from neurotest.errors import BadInput
from neurotest.memory import check_memory
from neurotest.memory import size as size_text

ALWAYS, TIMES = 256 << 20, 4  # bytes of any network; beyond that, how often what its files hold: float32 of numbers of 8 bits
MOST, MORE = 1000, 4  # parameters of any network; beyond that, how often the tensors in its files
_ONE = "are they of one network?"


def check(kind: Any, settings: Any, attention: str, state: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a network that is much larger than its weights.

    It is built on torch's device `meta`, which has shapes and no memory. Names are not compared: transformers knows older ones.
    """
    registered, most = 0, MOST + MORE * len(state)

    def count(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal registered
        registered += 1
        if registered > most:  # in the middle of building: a million layers would take hours
            raise BadInput(
                "too-large",
                "weights",
                f"hf:{folder}: config.json describes more than {most:,} weights, its files hold {len(state):,}: {_ONE}",
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            model = kind._from_config(copy.deepcopy(settings), attn_implementation=attention)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        return  # old versions of transformers ask for a value while some kinds are built
    finally:
        hook.remove()
    needed = sum(4 * tensor.numel() for tensors in (model.parameters(), model.buffers()) for tensor in tensors)
    stored = sum(tensor.nbytes for tensor in state.values())
    if needed > max(ALWAYS, TIMES * stored):
        raise BadInput(
            "too-large",
            "network",
            f"hf:{folder}: config.json describes a network of {size_text(needed)}, its files hold {size_text(stored)}: {_ONE}",
        )
    if needed > ALWAYS:
        check_memory(needed, f"hf:{folder}", "close other programs")
