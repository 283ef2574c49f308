"""Illumination: one fault for every (true class, predicted class, way of change), each with the smallest change found."""

from __future__ import annotations

from neurotest.generate.illuminate.api import IlluminateResult as IlluminateResult
from neurotest.generate.illuminate.api import illuminate as illuminate
from neurotest.generate.illuminate.settings import Illuminate as Illuminate
