"""Fitness by sensitivity: how far neurons move with the input; and, as a control, by the margin of the prediction."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from neurotest import rng
from neurotest.checks import Settings, number, setting
from neurotest.errors import BadInput
from neurotest.generate.swarm.measure import Measure, Problem, odds
from neurotest.mutate.unit import from_unit
from neurotest.registry import register
from neurotest.target import Want

V1 = "DeepSensor, sensitivity (Jin et al.)"
NOISES = 20  # noisy copies of each seed that set lambda
NOISES_AT_ONCE = 400  # of them, in one forward pass


def _lam(name: str, value: Any) -> float | str:
    if isinstance(value, str) and value.startswith("q"):
        try:
            if 0 < float(value[1:]) < 1:
                return value
        except ValueError:
            pass
    return number(name, value, "0.5 in the papers; or a quantile on random noise such as q0.95")


def _word(name: str, value: Any) -> Any:
    return "none" if value is None else value  # the word none, read as a value


@register(
    "fitness",
    "sensitivity",
    paper=V1,
    cost="one forward pass per position, probed; 20 noisy copies per seed set lambda",
    differs="The papers count neurons whose signed change, divided by the L2 norm of the input's change, exceeds 0.5; whether "
    "any can depends on the scale of a layer. By default changes are divided by each neuron's spread on training data (or on the "
    "seeds), taken without sign, and lambda is the 95th percentile on random noise of equal norm. The published code scales the "
    "difference of each layer to 0 .. 1 and counts above 0.2 (`preset=code`); the boundary coverage it adds is left out. By "
    "default the outputs of convolutions and dense layers count, 236 on LeNet-5; the papers' 268 are every layer's and the class "
    "probabilities (`layers=every,answers=true`, part of `preset=paper`).",
    main="lam",
    presets={
        "paper": {"scale": "raw", "signed": True, "divide": "l2", "lam": 0.5, "value": "count", "layers": "every",
                  "answers": True},
        "code": {"scale": "minmax", "signed": False, "divide": "none", "lam": 0.2, "value": "count"},
    },
)  # fmt: skip
class Sensitivity(Settings):
    """How many neurons the change of the input moves far.

    scale: `raw` values, `minmax` (each layer's differences to 0 .. 1), or `std` (by the neuron's spread on training data).
    signed: only rises count. divide: by the `l2` or `linf` norm of the change, or `none`. lam: a number, or `q0.95`, the quantile
    on random noise of the ball's size. value: `count` is the share of neurons above lambda, `mean` the mean change. layers: which
    count where --layers names none. answers: class probabilities count as neurons, too.
    """

    name: ClassVar[str] = "sensitivity"
    labels: ClassVar[bool] = False

    scale: Literal["raw", "minmax", "std"] = "std"
    signed: bool = False
    divide: Literal["l2", "linf", "none"] = setting("l2", read=_word)
    lam: float | str = setting("q0.95", read=_lam)
    value: Literal["count", "mean"] = "count"
    layers: str = "pre_activation"
    answers: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers and self.scale != "raw":
            raise BadInput(
                "conflict",
                "answers",
                f"answers=true with scale={self.scale}: class probabilities are compared as they are; say scale=raw.",
            )

    def begin(self, problem: Problem) -> Measure:
        layers = problem.layers or self.layers
        problem.target.survey().find(layers)  # refuses a glob that matches nothing
        want = Want(layers=layers, neuron=problem.neuron, keep="map" if self.scale == "minmax" else "reduced")  # type: ignore[arg-type]
        measure = _SensitivityMeasure(problem, (want,))
        measure.prepare(self)
        return measure


class _SensitivityMeasure(Measure):
    """Changes of neurons against what they are on the seed."""

    settings: Sensitivity
    limit: float = 0.0
    scale: Tensor | None = None  # 1 / spread per neuron
    base: Tensor | dict[str, Tensor]

    def prepare(self, settings: Sensitivity) -> None:
        self.settings = settings
        problem = self.problem
        with self:
            trace = self._probe(from_unit(problem.seeds, problem.target.bounds))
            values = trace.values
            self.forwards += len(problem.seeds)
            self.base = dict(values) if settings.scale == "minmax" else self._row(dict(values), trace.logits)
            if settings.scale == "std":
                self.scale = self._spread(torch.cat(list(values.values()), dim=1), list(values))
            self.limit = self._quantile(float(settings.lam[1:])) if isinstance(settings.lam, str) else settings.lam

    def _spread(self, values: Tensor, names: list[str]) -> Tensor:
        profile = self.problem.profile
        if profile is not None:
            std = torch.cat([torch.from_numpy(profile.layers[name].std) for name in names]).to(values)
        else:
            std = values.std(0) if len(values) > 1 else values.abs()[0]
        dead = int((std <= 1e-12).sum())
        if dead == len(std):
            raise BadInput(
                "empty", "layers", "no neuron of these layers ever changes: the layers are dead; choose others with --layers."
            )
        if dead:
            self.notes.append(f"{dead} of {len(std)} neurons never change on the data that sets their spread: they count as 0.")
        return torch.where(std > 1e-12, 1 / std.clamp_min(1e-12), 0.0)

    def _quantile(self, share: float) -> float:
        problem = self.problem
        n = len(problem.seeds)
        draws = [rng.torch_stream("swarm.lambda", problem.random, number) for number in range(NOISES)]
        changes = []
        size = max(1, NOISES_AT_ONCE // n)  # few seeds alone would be slow: several draws go through the network together
        for part in (draws[start : start + size] for start in range(0, NOISES, size)):
            noisy = torch.cat([problem.ball.noise(problem.seeds, draw) for draw in part])
            trace = self._probe(from_unit(noisy, problem.target.bounds))
            self.forwards += len(noisy)
            rows = torch.arange(n, device=noisy.device).repeat(len(part))
            with torch.inference_mode():
                changes.append(self.changes(noisy, rows, dict(trace.values), trace.logits).flatten())
        joined = torch.cat(changes)
        step = max(1, len(joined) // 1_000_000)  # torch.quantile takes 16 million values at most, and a million are enough
        return float(joined[::step].quantile(share))

    def _row(self, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        """Neurons of all layers side by side (n, neurons), in memory of their own."""
        answers = [logits.softmax(1).to(next(iter(values.values())))] if self.settings.answers else []
        return torch.cat([*values.values(), *answers], dim=1)

    def changes(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        """(n, neurons)"""
        settings = self.settings
        if settings.scale == "minmax":
            assert isinstance(self.base, dict)
            changes = torch.cat([_scaled(values[name] - self.base[name][owner]) for name in values], dim=1)
        else:
            assert isinstance(self.base, Tensor)
            changes = self._row(values, logits).sub_(self.base[owner])
            if self.scale is not None:
                changes.mul_(self.scale)
        if not settings.signed:
            changes.abs_()
        if settings.divide == "none":
            return changes
        size = (u - self.problem.seeds[owner]).flatten(1)
        norm = torch.linalg.vector_norm(size, 2 if settings.divide == "l2" else torch.inf, dim=1)
        return changes.div_(norm.clamp_min_(1e-12)[:, None])

    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        changes = self.changes(u, owner, values, logits)
        return (changes > self.limit).float().mean(1) if self.settings.value == "count" else changes.mean(1)


def _scaled(maps: Tensor) -> Tensor:
    """Differences of a layer brought to 0 .. 1 per input, then averaged over places."""
    flat = maps.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    unit = torch.where(high > low, (flat - low) / (high - low).clamp_min(1e-12), 0.0).view_as(maps)
    return unit.flatten(2).mean(2) if maps.ndim > 2 else unit


@register(
    "fitness",
    "margin",
    paper="",
    cost="one forward pass per position",
    differs="A control, made of the logits alone: what a fitness of hidden neurons has to be compared with.",
)
class Margin:
    """How far the other classes are ahead of the seed's class, in log-odds."""

    name: ClassVar[str] = "margin"
    labels: ClassVar[bool] = True

    def begin(self, problem: Problem) -> Measure:
        return _MarginMeasure(problem)


class _MarginMeasure(Measure):
    """Needs nothing but the logits."""

    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        return odds(logits, self.avoided[owner])
