"""DeepXplore: push one target away from what all targets say, and uncovered neurons up, until they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import count, eps_share
from neurotest.checks import fraction as real
from neurotest.errors import BadInput
from neurotest.generate.differential import constraints
from neurotest.generate.differential.ensemble import Ensemble, Seen
from neurotest.generate.differential.method import Outcome
from neurotest.generate.differential.neurons import pick
from neurotest.jobs.parts import Arrays
from neurotest.registry import register


@register(
    "differential",
    "deepxplore",
    paper="Pei et al., DeepXplore, SOSP 2017",
    cost="one forward and one backward pass of every target per step and seed that does not differ yet",
    differs="The image is clipped in every step and a difference counts only if it is one of the saved 8-bit image; the "
    "published code clips when it saves, so that what is saved may be no difference. Seeds run in batches. A neuron that "
    "others have covered meanwhile is drawn anew; there it is drawn once per seed. The target that is pushed changes from "
    "seed to seed (`push=0` fixes it) and so does the place of the rectangle (`place=corner` fixes it). With the "
    "published step of 10 most digits end all black or all white, and black patches cover them: here the step is 1, light "
    "changes by at most `eps` and there are at most `patches` black patches (`preset=mnist-paper` has neither bound).",
    main="constraint",
    presets={
        "mnist-paper": {
            "step": 10.0,
            "steps": 20,
            "class_weight": 1.0,
            "neuron_weight": 0.1,
            "threshold": 0.0,
            "eps": 1.0,
            "patches": None,
        }
    },
)
@dataclass(frozen=True, kw_only=True)
class DeepXplore:
    """Climb sum of the other targets' logits of the common class - `class_weight` x the pushed target's + `neuron_weight` x one
    uncovered neuron of each target, under a constraint, until the targets disagree.

    constraint: `light`, `occlusion` (a rectangle), `blackout` (small black patches) or `free`. step: of a gradient whose root
    mean square is 1. eps: the largest change by `light` and `free`. patches: black ones, at most (None: one per step). side: of
    the rectangle (10, black patches 6). threshold: a neuron is covered above it, after scaling.
    """

    name: ClassVar[str] = "deepxplore"
    several: ClassVar[bool] = True
    constraint: constraints.Constraint = "light"
    step: float = 1.0
    steps: int = 20
    eps: float = 0.5
    patches: int | None = 5
    class_weight: float = 1.0
    neuron_weight: float = 0.1
    threshold: float = 0.0
    side: int | None = None
    place: str = "random"
    push: int | None = None
    layers: str = "pre_activation"

    def __post_init__(self) -> None:
        if self.constraint not in constraints.CONSTRAINTS:
            raise BadInput(f"constraint={self.constraint!r}: expected light, occlusion, blackout or free.")
        if self.place not in ("random", "corner"):
            raise BadInput(f"place={self.place!r}: expected random or corner.")
        object.__setattr__(self, "eps", eps_share("eps", self.eps))
        if self.patches is not None:
            count("patches", self.patches, "5 leave a digit recognisable")
        if real("step", self.step, 0, None, "1 with light, 0.05 with free") == 0:
            raise BadInput("step=0: expected a number above 0.")
        for name in ("class_weight", "neuron_weight", "threshold"):
            real(name, getattr(self, name), 0, None, "the paper uses 1, 0.1 and 0")
        count("steps", self.steps, "20 in the paper")
        if self.side is not None:
            count("side", self.side, "10, or 6 for black patches")
        if self.push is not None and (not isinstance(self.push, int) or isinstance(self.push, bool) or self.push < 0):
            raise BadInput(f"push={self.push!r}: expected the number of a target, 0 for the first.")

    @property
    def operator(self) -> str:
        return f"deepxplore-{self.constraint}"

    def check(self, shape: tuple[int, ...]) -> None:
        constraints.check(self.constraint, shape)

    def begin(self, ensemble: Ensemble, random: int) -> _Search:
        if self.push is not None and self.push >= len(ensemble):
            raise BadInput(f"push={self.push}: there are {len(ensemble)} targets, the last is {len(ensemble) - 1}.")
        return _Search(self, ensemble, random)


class _Search:
    def __init__(self, method: DeepXplore, ensemble: Ensemble, random: int) -> None:
        self.method, self.ensemble, self.random = method, ensemble, random
        self.covered = [np.zeros(len(neurons), dtype=bool) for neurons in ensemble.neurons]

    def coverage(self) -> list[float]:
        return [float(covered.mean()) for covered in self.covered]

    def arrays(self) -> Arrays:
        return {f"covered{i}": covered for i, covered in enumerate(self.covered)}

    def restore(self, arrays: Arrays) -> None:
        self.covered = [arrays[f"covered{i}"].astype(bool) for i in range(len(self.covered))]

    def batch(self, seed: Tensor, classes: NDArray[np.int64], positions: NDArray[np.int64]) -> Outcome:
        method, work = self.method, _Batch(self, seed, classes, positions)
        for number in range(method.steps):
            work.advance(number)
            if not len(work.alive):
                break
        return work.finish()

    def draw(self, wanted: NDArray[np.int64], uniforms: NDArray[np.float64], *, all_: bool) -> NDArray[np.int64]:
        """One neuron per target and row: uncovered ones, any where all are covered; (targets, n)."""
        found = wanted.copy()
        for j, covered in enumerate(self.covered):
            left = np.flatnonzero(~covered)
            left = left if len(left) else np.arange(len(covered))
            again = np.full(len(found[j]), True) if all_ else covered[found[j]]
            found[j, again] = left[(uniforms[j, again] * len(left)).astype(np.int64)]
        return found


class _Batch:
    """One batch on its way: `alive` are the rows whose targets still agree."""

    def __init__(self, search: _Search, seed: Tensor, classes: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        self.search, self.method, self.ensemble = search, search.method, search.ensemble
        self.positions = positions
        self.y = torch.from_numpy(classes).to(seed.device)
        self.seed, self.u, self.saved = seed, seed.clone(), self.ensemble.settle(seed)
        self.dark = np.zeros(len(seed), dtype=np.int64)  # black patches so far
        self.steps = np.zeros(len(seed), dtype=np.int64)
        self.alive = np.arange(len(seed))
        self.wanted = np.zeros((len(self.ensemble), len(seed)), dtype=np.int64)
        k = len(self.ensemble)
        pushed = positions % k if self.method.push is None else np.full(len(seed), self.method.push)
        self.sign = np.where(np.arange(k)[:, None] == pushed[None], -self.method.class_weight, 1.0)  # (targets, n)
        self.wavered: set[int] = set()
        side = self.method.side or constraints.SIDES.get(self.method.constraint, 1)
        self.side, self.fixed = side, self._uniforms("place", 0, (len(seed), 2))
        if self.method.place == "corner":
            self.fixed = np.zeros_like(self.fixed)

    def _uniforms(self, what: str, step: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return rng.stream(f"diff.{what}", self.search.random, int(self.positions[0]), step).random(shape)

    def advance(self, number: int) -> None:
        """Look, take out what differs, and move the rest."""
        here = self._leaf()
        seen = self.ensemble.look(here)
        if number:
            stay = ~self._harvest(here, np.stack([s.predicted for s in seen], 1), seen, number)
            if not stay.any():
                return
        else:
            stay = np.ones(len(here), dtype=bool)
        rows = self.alive if number == 0 else self._before
        draws = self._uniforms("neuron", number, self.wanted.shape)
        self.wanted = self.search.draw(self.wanted, draws, all_=number == 0)
        with torch.enable_grad():
            aim = self._aim(seen, rows)[torch.from_numpy(stay).to(here.device)]
        gradient = self.ensemble.direction(aim, here, first=number == 0)[torch.from_numpy(stay).to(here.device)]
        self._move(gradient, number)

    def _leaf(self) -> Tensor:
        return self.u[torch.from_numpy(self.alive).to(self.u.device)].detach().requires_grad_()

    def _aim(self, seen: list[Seen], rows: NDArray[np.int64]) -> Tensor:
        own = self.y[torch.from_numpy(rows).to(self.y.device)][:, None]
        total: Any = 0.0
        for j, one in enumerate(seen):
            sign = torch.from_numpy(self.sign[j, rows]).to(one.logits)
            total = total + sign * one.logits.gather(1, own)[:, 0]
            total = total + self.method.neuron_weight * pick(one.values.means, self.wanted[j, rows][:, None])
        return torch.as_tensor(total)

    def _move(self, gradient: Tensor, number: int) -> None:
        inside = None
        if self.method.constraint in constraints.SIDES:
            drawn = self.fixed if self.method.constraint == "occlusion" else self._uniforms("place", number, self.fixed.shape)
            inside = constraints.rectangles(tuple(gradient.shape[1:]), self.side, drawn[self.alive], gradient)
        index = torch.from_numpy(self.alive).to(self.u.device)
        change = self.method.step * constraints.constrain(gradient, self.method.constraint, inside)
        moved = self.u[index] + change
        if self.method.constraint not in constraints.SIDES:
            low, high = self.seed[index] - self.method.eps, self.seed[index] + self.method.eps
            moved = torch.minimum(torch.maximum(moved, low), high)
        self.u[index] = moved.clamp(0, 1)
        self.steps[self.alive] = number + 1
        if self.method.constraint == "blackout" and self.method.patches is not None:
            self.dark[self.alive] += (change.flatten(1) < 0).any(1).cpu().numpy()

    def _harvest(self, here: Tensor, said: NDArray[np.int64], seen: list[Seen] | None, number: int) -> NDArray[np.bool_]:
        """Rows that differ, also as they are saved, leave, and what they covered counts; so do rows whose patches are used up."""
        self._before = self.alive
        real = np.zeros(len(here), dtype=bool)
        suspects = np.flatnonzero((said != said[:, :1]).any(1))
        if len(suspects):
            index = torch.from_numpy(suspects).to(here.device)
            saved = self.ensemble.settle(here[index])
            again = self.ensemble.predict(saved)
            holds = (again != again[:, :1]).any(1)
            real[suspects[holds]] = True
            self.wavered |= set(self.alive[suspects[~holds]].tolist())
            self.saved[torch.from_numpy(self.alive[suspects[holds]]).to(here.device)] = saved[
                torch.from_numpy(holds).to(here.device)
            ]
        if seen is not None:
            for covered, one in zip(self.search.covered, seen, strict=True):
                covered |= one.values.hits(self.method.threshold)[real].any(0)
        self.wavered -= set(self.alive[real].tolist())
        spent = ~real & (self.dark[self.alive] >= (self.method.patches or np.inf))
        if spent.any():
            place, held = (torch.from_numpy(a).to(here.device) for a in (self.alive[spent], spent))
            self.saved[place] = self.ensemble.settle(here[held])
        gone = real | spent
        self.alive = self.alive[~gone]
        return gone

    def finish(self) -> Outcome:
        """The last move is looked at, too; what still agrees is output as it stands."""
        if len(self.alive):
            here = self.u[torch.from_numpy(self.alive).to(self.u.device)]
            if bool((self.steps[self.alive] > 0).any()):
                with torch.no_grad():
                    seen = self.ensemble.look(here)
                self._harvest(here, np.stack([s.predicted for s in seen], 1), seen, self.method.steps)
            left = torch.from_numpy(self.alive).to(self.u.device)
            self.saved[left] = self.ensemble.settle(self.u[left])
        return Outcome(self.saved, np.arange(len(self.saved)), self.steps, len(self.wavered))
