"""How many inputs run at once: however large a batch is, what a layer holds of it stays under 256 MiB.

Memory that is asked for in large pieces is returned to the system and asked for again in the next layer, and the processor then
spends its time on clearing pages. The size of a part depends on the network and its inputs alone, never on the machine, so that
equal runs stay equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from neurotest.target.layers import Layer

LARGE_BATCH = 1 << 20  # values of a batch of inputs: smaller ones need no thought
LAYER_BYTES = 1 << 28  # bytes of a layer's input, its output and what its kernel keeps beside them
COPIES = 2  # a convolution lays its input out anew, unless its channels lie last already
LEAST_INPUTS = 4  # inputs: smaller parts leave the processor idle
GRAPH_BYTES = 1 << 29  # bytes that all layers of a pass keep for its gradient, as values and again while it is taken


def chunk(layers: Iterable[Layer], *, copies: int = COPIES) -> int:
    """Inputs per part, for a network with these layers."""
    widest = max((math.prod(layer.shape) + math.prod(layer.input_shape) for layer in layers), default=1)
    return max(LEAST_INPUTS, LAYER_BYTES // (4 * copies * widest))


def graph(layers: Iterable[Layer]) -> int:
    """Inputs per part of a pass whose gradient is taken: it keeps all layers, not only the widest."""
    return max(1, GRAPH_BYTES // (4 * COPIES * max(1, sum(math.prod(layer.shape) for layer in layers))))


def even(x: Tensor, most: int) -> Iterator[Tensor]:
    """The batch in parts of at most `most`, as equal as can be."""
    parts = -(-len(x) // most)
    start = 0
    for part in range(parts):
        stop = start + (len(x) - start) // (parts - part)
        yield x[start:stop]
        start = stop
