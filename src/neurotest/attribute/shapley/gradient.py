"""The quickest estimate: one gradient towards all masks at once, on the diagonal between no neuron and all of them."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor

from neurotest.attribute.shapley.game import Neuron, Players, hidden_layers, losses
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.target import Probe, Target
from neurotest.target.gradients import gradient


class MaskGradient:
    """d loss / d mask of every neuron when all masks are `t`; a context manager. One forward and one backward pass per input.

    The value of a neuron for a pair is the difference of this between the two inputs: Aumann and Shapley's integral along the
    diagonal, taken at one point. More points do not help, because the path and not the quadrature is what it gets wrong.
    No gradient towards the input is made: the graph begins at the first masked layer.
    """

    def __init__(self, target: Target, *, layers: str | None = None, neuron: Neuron = "channel", t: float = 0.5) -> None:
        if not 0 < t <= 1:
            raise BadInput(
                "out-of-range", "t", f"t={t!r}: expected a number above 0 and at most 1 (0.5 is the middle of the diagonal)."
            )
        self.players = Players(hidden_layers(target, layers), neuron)
        self.target, self.t = target, t
        self._now: dict[str, Tensor] = {}
        self._probe = Probe(target, self.players.want, grad=True, edit=lambda name, tensor: tensor * self._now[name])

    def __enter__(self) -> MaskGradient:
        self._probe.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._probe.__exit__(kind, error, trace)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(n, *shape), (n,) -> (n, players)."""
        with torch.inference_mode(False), torch.enable_grad():
            x, y = (one.clone() if one.is_inference() else one.detach() for one in (x, y))
            masks = torch.full((len(x), len(self.players)), self.t, device=x.device, requires_grad=True)
            self._now = self.players.parts(masks)
            loss = losses(self._probe(x).logits, y).sum()
            slopes = gradient(loss, masks, "layers")
        return slopes.detach()


def mask_gradient(
    target: Target,
    x: Tensor,
    moved: Tensor,
    y: Tensor,
    *,
    layers: str | None = None,
    neuron: Neuron = "channel",
    t: float = 0.5,
    efficient: bool = True,
    batch: int = 500,
) -> Tensor:
    """Values of all neurons for every pair: (n, players). `efficient` spreads what lacks to the loss change over the neurons,
    in proportion to their size, so that the values sum to it (where silencing all leaves nothing to change)."""
    parts = []
    with MaskGradient(target, layers=layers, neuron=neuron, t=t) as slope:
        for first, second, label in zip(x.split(batch), moved.split(batch), y.split(batch), strict=True):
            values = exact(slope(second, label) - slope(first, label))
            if efficient:
                with torch.inference_mode():
                    change = losses(target.logits(second), label) - losses(target.logits(first), label)
                values = spread(values, change)
            parts.append(values)
    return torch.cat(parts)


def spread(values: Tensor, total: Tensor) -> Tensor:
    """Values (n, players) shifted so that they sum to total (n,); a row of zeros stays one."""
    size = values.abs().sum(1, keepdim=True)
    share = torch.where(size > 0, values.abs() / size.clamp_min(1e-300), 0.0)
    return values + share * (total - values.sum(1))[:, None]
