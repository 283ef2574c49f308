"""How a swarm moves, and how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from neurotest.checks import number
from neurotest.errors import BadInput
from neurotest.settings.generate import Movement


@dataclass(frozen=True, kw_only=True)
class Settings(Movement):
    """Everything that shapes a swarm beside target, seeds and fitness.

    norm, radius: the ball around each seed, in shares of the input range; with `snr`, of sound, how many decibels each seed is
    above what is added to it. moves: `tiles` flips tiles of the change, from large to small, and joins the flips that help;
    `lattice` flips values that lie far apart together, reads which help from the first layer's map and joins those
    (excitability on images; in l2 it moves them a little instead); `chords` does the same with short tones, which are added to
    sound in an snr or l2 ball (excitability on networks whose first layer is a map of bands and times); `tones` adds them one by
    one; `auto` is chords, then tones there, lattice where that is possible, else tiles; `velocity` is the papers' particle swarm.
    particles: positions per seed and iteration (not of lattices and chords).
    evaluations: forward passes per seed at most (a backward pass counts two); iterations: rounds at most. labels: a seed is done
    after so many different wrong labels (None: never). enough: a seed is done when its fitness exceeds this (papers: epsilon).
    start: `random` places or the seed itself (`fixed`); inertia falls or rises from first to last; own, shared: pull towards a
    particle's and the swarm's best (c1, c2); speed: largest velocity per value (None: the radius); per_value: draws per value of
    the input instead of one per particle. batch: positions per forward pass. seed: of every random choice.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluations is None and self.iterations is None:
            raise BadInput("missing", "budget", "budget: none was given. Say --evaluations or --iterations.")
        if self.norm == "linf" and self.radius > 1:
            raise BadInput(
                "out-of-range",
                "radius",
                f"radius={self.radius:g}: beyond the input range; linf takes a share above 0 and at most 1.",
            )
        if len(self.inertia) != 2:
            raise BadInput(
                "out-of-range",
                "inertia",
                f"inertia={self.inertia!r}: expected two numbers >= 0, first and last (0.4 and 0.9 in the papers).",
            )
        for weight in self.inertia:
            number("inertia", weight, "first and last, 0.4 and 0.9 in the papers", least=0)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """An L2 radius may not be longer than the diagonal of the input range."""
        longest = math.sqrt(math.prod(shape))
        if self.norm == "snr" and len(shape) > 2:
            raise BadInput(
                "unsuitable",
                "norm",
                f"norm=snr: decibels are for sound (samples,) or (1, samples), not for inputs of shape {shape}.",
            )
        if self.norm == "l2" and self.radius > longest:
            raise BadInput(
                "out-of-range",
                "radius",
                f"radius={self.radius:g}: beyond the input range; l2 takes at most {longest:.4g} for this input.",
            )


# What the papers and the published code say, where they say it. The papers' swarms know no ball and no largest velocity; the ball
# is that of their coverage experiment, and a velocity of its radius crosses the whole input range in one round.
PAPER: dict[str, Any] = {
    "norm": "l2", "radius": 1.0, "moves": "velocity", "particles": 100, "evaluations": None, "iterations": 10, "labels": None,
    "enough": 1.0, "inertia": (0.4, 0.9),
}  # fmt: skip
# Speaker recognition (tables 6, 7): twenty iterations. The paper moves features, without a bound; here samples move, 30 dB below.
SOUND: dict[str, Any] = {"norm": "snr", "radius": 30.0, "iterations": 20}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "sensitivity-paper": {"fitness": "sensitivity:preset=paper", **PAPER},
    "sensitivity-code": {
        "fitness": "sensitivity:preset=code", **PAPER, "particles": 1, "iterations": 20, "inertia": (0.2, 2.0), "speed": 0.7,
        "norm": "none", "radius": 0.7,
    },
    "excitability-paper": {"fitness": "excitability:preset=paper", **PAPER},
    "excitability-gradient": {"fitness": "excitability:preset=gradient", **PAPER},
    "excitability-sound-paper": {"fitness": "excitability:preset=paper", **PAPER, **SOUND},
    "excitability-sound-gradient": {"fitness": "excitability:preset=gradient", **PAPER, **SOUND},
}  # fmt: skip
