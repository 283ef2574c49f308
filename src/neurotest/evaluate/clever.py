"""CLEVER: how far from an input the class may change, estimated from the largest gradients around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import Settings, setting
from neurotest.devices import widest
from neurotest.errors import BadInput
from neurotest.evaluate.leads import DUAL, ORDERS, Leads, Norm, draw, sizes
from neurotest.registry import register
from neurotest.stats.weibull import EndPoint, end_point
from neurotest.target import Target
from neurotest.target.outputs import Bins

RADII = {"l1": 100.0, "l2": 5.0, "linf": 0.3}  # shares of the input range
AT_ONCE = 128  # points in a forward pass
SCREENED = 2  # blocks of points after which far classes are first left out
LOGITS_ONLY = (
    "CLEVER measures how fast logits change, and this network returns {}, whose gradients vanish where it is sure: give the "
    "network without its last softmax or sigmoid (--outputs logits)."
)


@dataclass(frozen=True, eq=False)
class CleverEstimate:
    """For one input. rivals (r,): the other classes that were followed to the end.

    lead (r,): by how much the own class leads them; scores (r,).
    ends: the bound of each lead's gradient. changed: share of the random points that get another class; nearest: how far the
    nearest of those is from the input (infinity without any).
    """

    rivals: NDArray[np.int64]
    lead: NDArray[np.float64]
    scores: NDArray[np.float64]
    ends: tuple[EndPoint, ...]
    changed: float
    nearest: float

    @property
    def flat(self) -> bool:
        """Whether no point had a gradient at all, so that nothing can be said."""
        return all(end.value == 0 for end in self.ends)

    @property
    def score(self) -> float:
        """Against whatever class is nearest."""
        return float(self.scores.min())

    @property
    def rival(self) -> int:
        return int(self.rivals[self.scores.argmin()])


@register(
    "robustness",
    "clever",
    paper="Weng et al., Evaluating the Robustness of Neural Networks: An Extreme Value Theory Approach, ICLR 2018",
    cost="per input pool x samples forward passes and as many backward passes for every other class (1,280 and 11,520 for ten "
    "classes); with fresh batches x samples",
    differs="One pool of points serves all classes, and the largest gradients of a batch are those of a resample of the pool, as "
    "in the adversarial-robustness-toolbox; `fresh` draws new points for every batch, as in the paper. The end of the "
    "distribution is searched where the likelihood has a maximum (shapes of at least 1); a search from a bad start ends at "
    "the largest value seen or nowhere. A fit that Kolmogorov and Smirnov's test rejects, or that has no end in sight (a "
    "shape above 8), is replaced by the largest gradient seen, and counted. Points stay within the input range. The result "
    "is called an estimate: it bounds nothing, since the largest gradient may be one that no point met. Distances are "
    "shares of the input range.",
    main="samples",
    presets={
        "paper": {"batches": 500, "samples": 1024, "fresh": True},
        "art-code": {"batches": 500, "samples": 1024, "fresh": False},
    },
)
class Clever(Settings):
    """Estimated distance (L1, L2 or Linf) below which no change gives the input another class: an estimate, not a certificate.

    For each other class j the lead g = z_c - z_j divided by the largest norm of its gradient within `radius`; that norm is the
    end of a reversed Weibull distribution fitted to maxima of `batches` batches of `samples` points. Scores stop at the radius.
    targets: the other classes that are tried: all, or for each input the second (top2), the last (least) or a random one.
    radius: a share of the input range (100 for l1, 5 for l2, 0.3 for linf). screen: classes that after two blocks of points
    are more than so many times as far as the nearest are not followed further and get no score; the margin shrinks as points
    come (2, 1.5, 1.33), since the largest gradients then move less; 0 follows all. vmap: all
    classes in one backward pass, which is seldom faster. Of a quantity it is the distance below which it moves by no more than
    the tolerance: the tolerance over the largest norm of its gradient.
    """

    name: ClassVar[str] = "clever"

    norm: Norm = "l2"
    radius: float | None = setting(None, "5 for l2", above=0)
    batches: int = setting(50, "500 in the paper", least=10)
    samples: int = setting(128, "1024 in the paper")
    pool: int = setting(10, "10 is usual")
    fresh: bool = False
    targets: Literal["all", "top2", "random", "least"] = "all"
    screen: float = setting(2.0, "2; 0 tries every class to the end", least=0)
    vmap: bool = False

    @property
    def reach(self) -> float:
        """The radius that is used."""
        return RADII[self.norm] if self.radius is None else float(self.radius)

    def check(self, target: Target) -> None:
        """Refuse a target that gives no logits."""
        if target.outputs not in ("logits", "regression"):
            raise BadInput(
                "unsuitable", "outputs", LOGITS_ONLY.format("probabilities" if target.outputs == "probs" else "a sigmoid")
            )

    def estimate(
        self, leads: Leads, u: Tensor, own: int, *, position: int = 0, seed: int = 0, towards: int | None = None
    ) -> CleverEstimate:
        """For one input u (*shape) in [0, 1] of class `own`; towards: the only other class that counts."""
        logits = leads.logits(u[None])[0].to(widest(u.device))
        bins = leads.target.bins
        if bins is None:
            rivals = self._rivals(logits, own, position, seed, towards)
            lead = logits[own] - logits[rivals]
        else:
            rivals, lead = _to_tolerance(bins, own, towards, u.device)
        norms: list[Tensor] = []  # (rivals, points) each
        changed, near = 0, torch.inf
        for number, points in enumerate(self._points(u, position, seed), start=1):
            for part in points.split(AT_ONCE):
                out, size = self._norms(leads, part, own, rivals)
                norms.append(size)
                if bins is not None:
                    other = (bins.values(out.to(logits)) - bins.values(logits[None])).abs() > bins.tolerance
                else:
                    other = out.argmax(1) != own if towards is None else out.argmax(1) == towards
                changed += int(other.sum())
                if bool(other.any()):
                    near = min(near, float(sizes(part[other] - u, ORDERS[self.norm]).min()))
            if self.screen:
                close = self._close(lead, torch.cat(norms, 1).amax(1).to(lead), number)
                rivals, lead, norms = rivals[close], lead[close], [one[close] for one in norms]
        values = torch.cat(norms, 1).cpu().double().numpy()  # (rivals, points)
        ends = tuple(end_point(maxima, largest=top) for maxima, top in zip(*self._maxima(values, position, seed), strict=True))
        scores = np.array([self._score(g, end.value) for g, end in zip(lead.tolist(), ends, strict=True)])
        return CleverEstimate(rivals.cpu().numpy(), lead.cpu().numpy(), scores, ends, changed / values.shape[1], near)

    def _points(self, u: Tensor, position: int, seed: int) -> Iterator[Tensor]:
        """Points of the ball around u: first those after which far classes are left out, then about as many as go together."""
        blocks: list[Tensor] = []
        count = self.batches if self.fresh else self.pool
        for block in range(count):
            generator = rng.torch_stream("clever.points", seed, position, block)
            moved = u + self.reach * draw(self.samples, tuple(u.shape), self.norm, generator).to(u)
            blocks.append(moved.clamp(0, 1))
            full = len(blocks) * self.samples >= AT_ONCE and block >= SCREENED
            if block + 1 in (SCREENED, count) or full:
                yield torch.cat(blocks)
                blocks = []

    def _close(self, lead: Tensor, largest: Tensor, number: int) -> Tensor:
        """(rivals,) which of them may still turn out to be the nearest, after so many groups of points."""
        so_far = lead.clamp_min(0) / largest.clamp_min(1e-30)
        return so_far <= (1 + max(self.screen - 1, 0) / number) * so_far.min()

    def _score(self, lead: float, end: float) -> float:
        return min(max(lead, 0.0) / end, self.reach) if end > 0 else self.reach

    def _rivals(self, logits: Tensor, own: int, position: int, seed: int, towards: int | None) -> Tensor:
        order = logits.argsort(descending=True)
        order = order[order != own]
        if towards is not None:
            return order[order == towards]
        if self.targets == "random":
            return order[[int(rng.stream("clever.class", seed, position).integers(len(order)))]]
        return {"all": order.sort().values, "top2": order[:1], "least": order[-1:]}[self.targets]

    def _norms(self, leads: Leads, part: Tensor, own: int, rivals: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the dual norm of each lead's gradient at each point: (rivals, n)."""
        owns = torch.full((len(part),), own, device=part.device)
        most = max(1, (1 << 24) // part.numel())  # rivals whose gradients are held at once
        norms: list[Tensor] = []
        for some in rivals.split(most):
            logits, gradients = leads.slopes(part, owns, some[:, None])
            norms.append(sizes(gradients, DUAL[self.norm], 2))
        return logits, torch.cat(norms)

    def _maxima(self, values: NDArray[np.float64], position: int, seed: int) -> tuple[Iterator[Any], Iterator[float]]:
        """For each rival the maxima of the batches, and the largest value of all."""
        if self.fresh:
            maxima = values.reshape(len(values), self.batches, self.samples).max(2)
        else:
            places = rng.stream("clever.batches", seed, position).integers(0, values.shape[1], (self.batches, self.samples))
            maxima = np.stack([row[places].max(1) for row in values])
        return iter(maxima), iter(values.max(1).tolist())


def _to_tolerance(bins: Bins, own: int, towards: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of a quantity: the bin beside the own one, and how far a lead over it falls when the quantity moves by the tolerance. The
    logits of neighbours differ by the quantity over a bin's width, so that one gradient tells all."""
    if towards is not None:
        raise BadInput(
            "unsuitable",
            "towards",
            "towards is for classes, and the target predicts a quantity: leave it out, and set --tolerance.",
        )
    beside = own + 1 if own + 1 < bins.count else own - 1
    falls = torch.tensor([bins.tolerance / bins.width], dtype=widest(device), device=device)
    return torch.tensor([beside], device=device), falls
