"""Particle swarms that look for faults in the ball around each seed, led by what hidden neurons do."""

from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.engine import Hit, Swarm, Trajectory
from neurotest.generate.swarm.excitability import Excitability
from neurotest.generate.swarm.fitness import Margin, Sensitivity
from neurotest.generate.swarm.measure import Fitness, Measure, Problem
from neurotest.generate.swarm.settings import PRESETS, Settings

__all__ = [
    "PRESETS",
    "Ball",
    "Excitability",
    "Fitness",
    "Hit",
    "Margin",
    "Measure",
    "Problem",
    "Sensitivity",
    "Settings",
    "Swarm",
    "Trajectory",
]
