"""The network under test: loading it, finding its layers, probing and profiling it."""

from neurotest.target.layers import Layer, Survey
from neurotest.target.load import load
from neurotest.target.probe import Probe, Trace, Want
from neurotest.target.profile import Profile
from neurotest.target.target import Target

__all__ = ["Layer", "Probe", "Profile", "Survey", "Target", "Trace", "Want", "load"]
