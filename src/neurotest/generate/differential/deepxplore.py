"""DeepXplore: push one target away from the class all targets predict, and uncovered neurons up, until they disagree."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import eps_share, setting
from neurotest.devices import placed
from neurotest.errors import BadInput
from neurotest.generate.differential.ensemble import BatchOutputs, Ensemble, Method, Output, apart, pick, rows_of
from neurotest.jobs.parts import Arrays
from neurotest.registry import register

Constraint = Literal["light", "occlusion", "blackout", "free"]
SIDES = {"occlusion": 10, "blackout": 6}  # of the rectangle, as published for 28 x 28 images


def _rectangles(shape: tuple[int, ...], side: int, uniforms: NDArray[np.float64], like: Tensor) -> Tensor:
    """A rectangle per row of uniform numbers (n, 2), all inside the image: (n, 1, h, w) of 0 and 1."""
    height, width = shape[-2:]
    tall, wide = min(side, height), min(side, width)
    top = torch.from_numpy(np.floor(uniforms[:, 0] * (height - tall + 1))).to(like).view(-1, 1, 1, 1)
    left = torch.from_numpy(np.floor(uniforms[:, 1] * (width - wide + 1))).to(like).view(-1, 1, 1, 1)
    rows = torch.arange(height).to(like).view(1, 1, -1, 1)
    columns = torch.arange(width).to(like).view(1, 1, 1, -1)
    inside = (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)
    return inside.to(like)


def _constrain(gradient: Tensor, constraint: Constraint, inside: Tensor | None) -> Tensor:
    """What is left of a gradient (n, *shape); `inside` is each row's rectangle.

    light: its mean everywhere. occlusion: itself inside the rectangle. blackout: -1 inside the rectangle where its mean there
    is below 0, else nothing.
    """
    if constraint == "free":
        return gradient
    if constraint == "light":
        mean = gradient.flatten(1).mean(1)
        return mean.view(-1, *[1] * (gradient.ndim - 1)).expand_as(gradient)
    assert inside is not None
    if constraint == "occlusion":
        return gradient * inside
    darker = (gradient * inside).flatten(1).sum(1) < 0
    return -(inside * darker.to(gradient).view(-1, 1, 1, 1)).expand_as(gradient)


def _check_shape(constraint: str, shape: tuple[int, ...]) -> None:
    if constraint in SIDES and len(shape) != 3:
        raise BadInput(
            "unsuitable",
            "constraint",
            f"constraint={constraint!r} needs images (channels, height, width), not inputs of shape {shape}: use light or free.",
        )


WEIGHTS = "the paper uses 1, 0.1 and 0"


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
        "mnist-paper": {"step": 10.0, "steps": 20, "class_weight": 1.0, "neuron_weight": 0.1, "threshold": 0.0, "eps": 1.0,
                        "patches": None},
    },
)  # fmt: skip
class DeepXplore(Method):
    """Climb sum of the other targets' logits of the common class - `class_weight` x the pushed target's + `neuron_weight` x one
    uncovered neuron of each target, under a constraint, until the targets disagree. Of regression values it is the answers
    themselves, in bins, that are driven apart, until they differ by more than the tolerance.

    constraint: `light`, `occlusion` (a rectangle), `blackout` (small black patches) or `free`. step: of a gradient whose root
    mean square is 1. eps: the largest change by `light` and `free`. patches: black ones, at most (None: one per step). side: of
    the rectangle (10, black patches 6). threshold: a neuron is covered above it, after scaling.
    """

    name: ClassVar[str] = "deepxplore"
    several: ClassVar[bool] = True
    constraint: Constraint = "light"
    step: float = setting(1.0, "1 with light, 0.05 with free", above=0)
    steps: int = setting(20, "20 in the paper")
    eps: float = setting(0.5, read=eps_share)
    patches: int | None = setting(5, "5 leave a digit recognisable")
    class_weight: float = setting(1.0, WEIGHTS, least=0)
    neuron_weight: float = setting(0.1, WEIGHTS, least=0)
    threshold: float = setting(0.0, WEIGHTS, least=0)
    side: int | None = setting(None, "10, or 6 for black patches")
    place: Literal["random", "corner"] = "random"
    push: int | None = setting(None, "the number of a target, 0 for the first", least=0)

    @property
    def operator(self) -> str:
        return f"deepxplore-{self.constraint}"

    def check(self, shape: tuple[int, ...], *, audio: bool = False) -> None:
        _check_shape(self.constraint, shape)
        if audio and self.constraint == "light":
            raise BadInput(
                "unsuitable",
                "light",
                "constraint='light' moves all samples of audio alike, which nobody hears: use deepxplore:free,step=0.001.",
            )

    def begin(self, ensemble: Ensemble, random: int) -> _Search:
        if self.push is not None and self.push >= len(ensemble):
            raise BadInput(
                "out-of-range", "push", f"push={self.push}: there are {len(ensemble)} targets, the last is {len(ensemble) - 1}."
            )
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

    def batch(self, seed: Tensor, classes: NDArray[Any], positions: NDArray[np.int64]) -> BatchOutputs:
        method, batch = self.method, _Batch(self, seed, classes, positions)
        for step in range(method.steps):
            batch.step(step)
            if not len(batch.active):
                break
        return batch.finish()

    def draw(self, neurons: NDArray[np.int64], uniforms: NDArray[np.float64], *, all_: bool) -> NDArray[np.int64]:
        """One neuron per target and row: uncovered ones, any where all are covered; (targets, n)."""
        neurons = neurons.copy()
        for j, covered in enumerate(self.covered):
            free = np.flatnonzero(~covered)
            free = free if len(free) else np.arange(len(covered))
            redrawn = np.full(len(neurons[j]), True) if all_ else covered[neurons[j]]
            neurons[j, redrawn] = free[(uniforms[j, redrawn] * len(free)).astype(np.int64)]
        return neurons


class _Batch:
    """One batch: `active` are the rows whose targets still agree."""

    def __init__(self, search: _Search, seed: Tensor, classes: NDArray[Any], positions: NDArray[np.int64]) -> None:
        self.search, self.method, self.ensemble = search, search.method, search.ensemble
        self.positions = positions
        self.y = placed(classes, seed.device)
        self.seed, self.u, self.saved = seed, seed.clone(), self.ensemble.quantise(seed)
        self.dark = np.zeros(len(seed), dtype=np.int64)  # black patches so far
        self.steps = np.zeros(len(seed), dtype=np.int64)
        self.active = np.arange(len(seed))
        self.neurons = np.zeros((len(self.ensemble), len(seed)), dtype=np.int64)
        k = len(self.ensemble)
        pushed = positions % k if self.method.push is None else np.full(len(seed), self.method.push)
        self.sign = np.where(np.arange(k)[:, None] == pushed[None], -self.method.class_weight, 1.0)  # (targets, n)
        self.unstable: set[int] = set()
        side = self.method.side or SIDES.get(self.method.constraint, 1)
        self.side, self.fixed = side, self._uniforms("place", 0, (len(seed), 2))
        if self.method.place == "corner":
            self.fixed = np.zeros_like(self.fixed)

    def _uniforms(self, what: str, step: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return rng.stream(f"diff.{what}", self.search.random, int(self.positions[0]), step).random(shape)

    def step(self, number: int) -> None:
        """Run the targets, collect rows on which they differ, and move the rest."""
        rows = self.active
        here = rows_of(self.u, rows).detach().requires_grad_()
        forward = self.ensemble.forward(here)
        stay = ~self._collect(here, forward) if number else np.ones(len(here), dtype=bool)
        if not stay.any():
            return
        draws = self._uniforms("neuron", number, self.neurons.shape)
        self.neurons = self.search.draw(self.neurons, draws, all_=number == 0)
        with torch.enable_grad():
            objective = rows_of(self._objective(forward, rows), stay)
        gradient = rows_of(self.ensemble.direction(objective, here, first=number == 0), stay)
        self._move(gradient, number)

    def _objective(self, forward: list[Output], rows: NDArray[np.int64]) -> Tensor:
        own = rows_of(self.y, rows)
        total: Any = 0.0
        for j, one in enumerate(forward):
            sign = torch.from_numpy(self.sign[j, rows]).to(one.logits)
            total = total + sign * one.away(own)
            total = total + self.method.neuron_weight * pick(one.values.means, self.neurons[j, rows][:, None])
        return torch.as_tensor(total)

    def _move(self, gradient: Tensor, number: int) -> None:
        inside = None
        if self.method.constraint in SIDES:
            drawn = self.fixed if self.method.constraint == "occlusion" else self._uniforms("place", number, self.fixed.shape)
            inside = _rectangles(tuple(gradient.shape[1:]), self.side, drawn[self.active], gradient)
        index = torch.from_numpy(self.active).to(self.u.device)
        change = self.method.step * _constrain(gradient, self.method.constraint, inside)
        moved = self.u[index] + change
        if self.method.constraint not in SIDES:
            low, high = self.seed[index] - self.method.eps, self.seed[index] + self.method.eps
            moved = torch.minimum(torch.maximum(moved, low), high)
        self.u[index] = moved.clamp(0, 1)
        self.steps[self.active] = number + 1
        if self.method.constraint == "blackout" and self.method.patches is not None:
            self.dark[self.active] += (change.flatten(1) < 0).any(1).cpu().numpy()

    def _collect(self, here: Tensor, forward: list[Output]) -> NDArray[np.bool_]:
        """Rows on which targets differ, also as saved, leave, and what they covered counts; so do rows with all patches used."""
        faults = np.zeros(len(here), dtype=bool)
        tolerance = self.ensemble.tolerance
        suspects = np.flatnonzero(apart(np.stack([one.predicted for one in forward], 1), tolerance))
        if len(suspects):
            saved = self.ensemble.quantise(rows_of(here, suspects))
            stable = apart(self.ensemble.predict(saved), tolerance)
            faults[suspects[stable]] = True
            self.unstable |= set(self.active[suspects[~stable]].tolist())
            self._save(self.active[suspects[stable]], rows_of(saved, stable))
        for covered, one in zip(self.search.covered, forward, strict=True):
            covered |= one.values.covered(self.method.threshold)[faults].any(0)
        self.unstable -= set(self.active[faults].tolist())
        spent = ~faults & (self.dark[self.active] >= (self.method.patches or np.inf))
        if spent.any():
            self._save(self.active[spent], self.ensemble.quantise(rows_of(here, spent)))
        done = faults | spent
        self.active = self.active[~done]
        return done

    def _save(self, rows: NDArray[np.int64], x: Tensor) -> None:
        self.saved[torch.from_numpy(rows).to(x.device)] = x

    def finish(self) -> BatchOutputs:
        """Rows whose targets still agree after the last step are output as they are."""
        if len(self.active):
            here = rows_of(self.u, self.active)
            if bool((self.steps[self.active] > 0).any()):
                with torch.no_grad():
                    forward = self.ensemble.forward(here)
                self._collect(here, forward)
            self._save(self.active, self.ensemble.quantise(rows_of(self.u, self.active)))
        return BatchOutputs(self.saved, np.arange(len(self.saved)), self.steps, len(self.unstable))
