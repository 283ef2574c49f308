"""Guided fuzzing: seeds are mutated, a guide decides which mutants are kept, oracles say which are faults."""

from neurotest.generate.fuzz.guides import build_guide
from neurotest.generate.fuzz.loop import Fuzzer
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.fuzz.settings import Budget, Settings

__all__ = ["Budget", "Fuzzer", "Mutant", "Seeds", "Settings", "Tally", "build_guide", "choose_seeds"]
