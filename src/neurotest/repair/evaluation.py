"""What a repair did, set by set: predictions of every training, accuracies with intervals over seeds and inputs, what flipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry, rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.gradient.attacks import Attack
from neurotest.repair.lessons import predictions
from neurotest.repair.plan import RepairPlan, some
from neurotest.repair.protocol import attacked
from neurotest.stats.bootstrap import Interval
from neurotest.stats.comparison import mcnemar
from neurotest.target import Target

ATTACKED = 200  # inputs of the holdout
DRAWS = 1000
CELLS = 1 << 22
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def read_attacks(texts: Sequence[str] | None, shape: tuple[int, ...]) -> dict[str, Attack]:
    """Attacks by name; without any, PGD of the usual size: 8/255 for colour, 0.1 otherwise. `none`: no attack."""
    if texts is None:
        eps = "8/255" if len(shape) == 3 and shape[0] == 3 else "0.1"
        texts = [f"fgsm:eps={eps}", f"pgd:eps={eps},step={'2/255' if eps == '8/255' else '0.02'},steps=10"]
    attacks: dict[str, Attack] = {}
    for text in texts:
        if text == "none":
            continue
        attack = registry.build("attack", text)
        if attack.name in attacks:
            raise BadInput("duplicate", "attack", f"--attack {text}: {attack.name} is given twice.")
        attacks[attack.name] = attack
    return attacks


class Judge:
    """The sets of a plan and its attacks: what a network predicts on each."""

    def __init__(self, plan: RepairPlan, attacks: dict[str, Attack], victims: int = ATTACKED) -> None:
        self.plan, self.attacks = plan, attacks
        self.victims = some(plan.sets["clean"], victims, plan.seed, "attacked")
        self._transferred: dict[str, Source] = {}

    @property
    def labels(self) -> dict[str, Ints]:
        """Of every set."""
        of_attacks = [f"{name}-{kind}" for name in self.attacks for kind in ("adaptive", "transferred")]
        sources = {**self.plan.sets, **dict.fromkeys(of_attacks, self.victims)}
        return {name: np.asarray(source.labels) for name, source in sources.items()}

    def transferred(self, name: str) -> Source:
        """Inputs moved on the old network."""
        if name not in self._transferred:
            self._transferred[name] = attacked(self.plan.target, self.victims, self.attacks[name], self.plan.seed)
        return self._transferred[name]

    def old(self) -> dict[str, Ints]:
        answers = dict(self.plan.old)
        for name in self.attacks:
            answers[f"{name}-adaptive"] = answers[f"{name}-transferred"] = predictions(self.plan.target, self.transferred(name))
        return answers

    def predict(self, target: Target) -> dict[str, Ints]:
        answers = {name: predictions(target, source) for name, source in self.plan.sets.items()}
        for name, attack in self.attacks.items():
            moved = attacked(target, self.victims, attack, self.plan.seed)
            answers[f"{name}-adaptive"] = predictions(target, moved)
            answers[f"{name}-transferred"] = predictions(target, self.transferred(name))
        return answers


def _shares(right: Bools, other: Bools | None = None, seed: int = 0) -> Interval:
    """The mean of (seeds, inputs), or of its difference to `other`, with a bootstrap interval over both.

    With one seed the interval is over inputs alone.
    """
    values = right.astype(np.float64) - (0.0 if other is None else other.astype(np.float64))
    seeds, n = values.shape
    random = rng.stream("repair.interval", seed)
    means = np.empty(DRAWS)
    rows = max(1, CELLS // n)
    for start in range(0, DRAWS, rows):
        count = min(rows, DRAWS - start)
        which = random.multinomial(seeds, np.full(seeds, 1 / seeds), count) / seeds  # (count, seeds)
        inputs = random.multinomial(n, np.full(n, 1 / n), count) / n  # (count, n)
        means[start : start + count] = np.einsum("cs,sn,cn->c", which, values, inputs, optimize=True)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def rows(arms: dict[str, list[dict[str, Ints]]], old: dict[str, Ints], labels: dict[str, Ints]) -> dict[str, Any]:
    """Numbers of every set: of the protocol (`repair`) beside the old network, and of its controls beside it."""
    right = {
        arm: {name: np.stack([one[name] == labels[name] for one in trainings]) for name in labels}
        for arm, trainings in arms.items()
        if trainings
    }
    sets: dict[str, Any] = {}
    controls: dict[str, Any] = {}
    for name, truth in labels.items():
        before, ours = old[name] == truth, right["repair"][name]
        fixed, broken = int((~before & ours[0]).sum()), int((before & ~ours[0]).sum())
        mean = _shares(ours)
        sets[name] = {
            "inputs": len(truth), "before": float(before.mean()), "after": mean.value, "interval": [mean.low, mean.high],
            "fixed": fixed, "broken": broken, "p": mcnemar(fixed, broken),
        }  # fmt: skip
    for arm, by_set in right.items():
        if arm == "repair":
            continue
        controls[arm] = {}
        for name, theirs in by_set.items():
            alone, gain = _shares(theirs), _shares(right["repair"][name], theirs)
            controls[arm][name] = {
                "after": alone.value, "interval": [alone.low, alone.high], "gain": gain.value,
                "gain_interval": [gain.low, gain.high],
            }  # fmt: skip
    return {"sets": sets, "controls": controls}


def flips(old: Ints, new: Ints, truth: Ints) -> tuple[list[int], list[int]]:
    """Which inputs are right now and were not, and the other way round."""
    fixed, broken = (old != truth) & (new == truth), (old == truth) & (new != truth)
    return np.flatnonzero(fixed).tolist(), np.flatnonzero(broken).tolist()
