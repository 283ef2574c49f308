"""Measures four ways to let the guide `goals` look inside, beside the control that looks at pixels: docs/notes/guide-goals.md.

python lab/scripts/measure_inside.py                               # both LeNet-5, four repetitions; ten minutes on one core
python lab/scripts/measure_inside.py --subjects fashion-resnet20   # others

Each idea replaces what forecasts are made from beside logits and label, or how sure they are. None of them is in the package:
only one that beats the control, with an interval clear of zero on two subjects, would be.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from neurotest.data.source import Source
from neurotest.generate.fuzz.goals import Goals
from neurotest.generate.fuzz.goals.features import HIDDEN, Beside, Neurons, Pixels, hidden
from neurotest.generate.fuzz.goals.planning import Forecasts, chances
from neurotest.generate.fuzz.goals.state import GoalsState
from neurotest.generate.fuzz.guides import GuideState
from neurotest.measure.context import Context
from neurotest.measure.traces import array
from neurotest.mutate.chain import Mutation, draws_of
from neurotest.mutate.rules import Rules95
from neurotest.target import Probe, Target, Trace, Want

sys.path.insert(0, str(Path(__file__).parent))
from measure_goals import LENETS, PASSES, campaign, say, table

REPETITIONS = 4
EVERY = Want(layers="pre_activation", neuron="channel")
STEPS = (
    Mutation("rotation", (15.0,)), Mutation("translation", (5.0, 0.0)), Mutation("contrast", (1.6,)),
    Mutation("brightness", (40.0,)), Mutation("blur", (5.0,)),
)  # fmt: skip


class PartingLayer(Beside):
    """The layer where seeds and mutants part: whose change over its spread grows most against the layer before it."""

    def __init__(self, target: Target, seeds: Source) -> None:
        mutations, x = Rules95(bilateral=False), torch.from_numpy(seeds.read(np.arange(min(100, len(seeds))))).float() / 255
        with Probe(target, EVERY) as probe:
            before = {name: array(v).copy() for name, v in probe(target.prepare(_saved(x))).values.items()}
            moved = dict.fromkeys(before, 0.0)
            for step in STEPS:
                draws = draws_of(mutations, [step])[np.zeros(len(x), dtype=int)]
                after = probe(target.prepare(_saved(mutations.apply(x, draws)))).values
                for name, values in after.items():
                    moved[name] += float(np.abs(array(values) - before[name]).mean() / before[name].std())
        sizes = np.array(list(moved.values()))[:-1]  # the last are the logits
        layer = list(moved)[int(np.argmax(sizes[1:] / sizes[:-1])) + 1]
        self.wants = (Want(layers=layer, neuron="channel"),)
        self.name = f"parting layer ({layer})"

    def values(self, x: torch.Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any]:
        (values,) = trace[self.wants[0]].values()
        return array(values)


def _saved(x: torch.Tensor) -> NDArray[Any]:
    return np.asarray(x.mul(255).round().to(torch.uint8).numpy())


class Conductance(Neurons):
    """Hidden neurons, each times its weight for the expected class over the mean of all: what it adds to that logit."""

    def __init__(self, target: Target) -> None:
        (layer,) = target.survey().find(HIDDEN.layers)
        dense = target.module.get_submodule(str(layer.module))
        assert isinstance(dense, torch.nn.Linear)
        weight = dense.weight.detach().numpy()
        self.weight = weight - weight.mean(axis=0)

    def values(self, x: torch.Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(hidden(trace) * self.weight[true])


class ByClass(Beside):
    """The margin of the expected class, in a column of its own for each class: how sensitive every class is to every rule."""

    def values(self, x: torch.Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any]:
        z = array(trace.logits).astype(np.float64)
        rows = np.arange(len(z))
        others = z.copy()
        others[rows, true] = -np.inf
        return np.asarray(np.eye(z.shape[1])[true] * (z[rows, true] - others.max(axis=1))[:, None])


class Unsure(GoalsState):
    """Forecasts are the flatter, the farther a parent's hidden neurons have turned away from its seed's (cosine)."""

    def _forecast(self, sample: NDArray[np.int64]) -> Forecasts:
        plain = super()._forecast(sample)
        start = 1 + self.features.outputs + self.features.classes
        ours, seeds = plain.parents.features[:, start:], self.features.seeds[plain.parents.root][:, start:]
        cosine = (ours * seeds).sum(1) / np.maximum(np.linalg.norm(ours, axis=1) * np.linalg.norm(seeds, axis=1), 1e-9)
        logits = (plain.logits / (2 - cosine)[:, None, None]).astype(np.float32)
        is_true = plain.parents.classes == plain.true[:, None]
        chance = chances(logits, is_true, self.temperature.value, (1.0, 0.0))
        return Forecasts(plain.parents, plain.true, plain.logits, chance, plain.size)


@dataclass(frozen=True, kw_only=True)
class Looks(Goals):
    """Goals with one of the ideas."""

    idea: str = "pixels"

    def start(self, context: Context, seeds: Source) -> GuideState:
        target = context.need_target()
        match self.idea:
            case "layer where seed and mutant part":
                return GoalsState(self, PartingLayer(target, seeds))
            case "conductance of hidden neurons":
                return GoalsState(self, Conductance(target))
            case "sensitivity by class":
                return GoalsState(self, ByClass())
            case "cosine as uncertainty, neurons":
                return Unsure(self, Neurons())
        return GoalsState(self, Pixels())


IDEAS = ("pixels (control)", "layer where seed and mutant part", "conductance of hidden neurons", "sensitivity by class",
         "cosine as uncertainty, neurons")  # fmt: skip


def interval(differences: list[float]) -> str:
    """The mean in percent, and Student's interval of 95 %."""
    mean, error = np.mean(differences), stats.sem(differences)
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * error
    return f"{100 * mean:+.1f} % ({100 * (mean - half):+.1f} to {100 * (mean + half):+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", nargs="*", default=LENETS)
    torch.set_num_threads(1)
    rows = []
    for subject in parser.parse_args().subjects:
        passes = PASSES[subject]
        counts: dict[str, list[float]] = {}
        for idea in IDEAS:
            runs = [campaign(subject, Looks(idea=idea), r, passes) for r in range(REPETITIONS)]
            counts[idea] = [run.at("families", passes) for run in runs]
            control = counts[IDEAS[0]]
            over = interval([a / b - 1 for a, b in zip(counts[idea], control, strict=True)]) if idea != IDEAS[0] else ""
            rows.append([subject, idea, f"{np.mean(counts[idea]):.0f}", over])
            say(rows[-1])
    table(["subject", "forecasts from logits, label and", "families", "over the control, interval of 95 %"], rows)


if __name__ == "__main__":
    main()
