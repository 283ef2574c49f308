"""Particle swarms that look for faults in the ball around each seed, led by what hidden neurons do."""

from neurotest.generate.swarm.ball import Ball as Ball
from neurotest.generate.swarm.engine import Hit as Hit
from neurotest.generate.swarm.engine import Swarm as Swarm
from neurotest.generate.swarm.engine import Trajectory as Trajectory
from neurotest.generate.swarm.excitability import Excitability as Excitability
from neurotest.generate.swarm.fitness import Margin as Margin
from neurotest.generate.swarm.fitness import Sensitivity as Sensitivity
from neurotest.generate.swarm.measure import Fitness as Fitness
from neurotest.generate.swarm.measure import Measure as Measure
from neurotest.generate.swarm.measure import Problem as Problem
from neurotest.generate.swarm.settings import PRESETS as PRESETS
from neurotest.generate.swarm.settings import Settings as Settings
