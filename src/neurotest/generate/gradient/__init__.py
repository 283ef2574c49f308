"""Attacks along the gradient, with an optional regulariser that makes activations diverse."""

from __future__ import annotations

from neurotest.generate.gradient.api import attack as attack
from neurotest.generate.gradient.attacks import BIM as BIM
from neurotest.generate.gradient.attacks import CW as CW
from neurotest.generate.gradient.attacks import FGSM as FGSM
from neurotest.generate.gradient.attacks import PGD as PGD
from neurotest.generate.gradient.engine import Diversity as Diversity
from neurotest.generate.suite import AttackResult as AttackResult
