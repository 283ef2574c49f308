"""No preset called after a paper is without a plain loop written from its text."""

from __future__ import annotations

from neurotest import registry
from neurotest.generate.swarm.settings import PRESETS

from . import test_baselines_paper as baselines
from . import test_deepsensor_paper as deepsensor
from . import test_nsgen_paper as nsgen
from . import test_nss_paper as nss

TESTED = {
    ("guide", "nsgen", "paper"): nsgen.test_nsgen_compares_as_algorithm_1_and_sections_4_3_1_to_4_3_3,
    ("describer", "milan", "paper"): nsgen.test_pooling_of_equation_6,
    ("validity", "valid", "nsgen-paper"): nsgen.test_validity_of_section_5_2,
    ("fitness", "sensitivity", "paper"): deepsensor.test_sensitivity_counts_the_neurons_of_table_1_by_equations_1_and_2,
    ("fitness", "excitability", "paper"): deepsensor.test_excitability_is_equations_3_to_6,
    ("selector", "nss", "paper"): nss.test_nss_is_algorithms_1_and_2,
    ("differential", "deepxplore", "mnist-paper"): baselines.test_deepxplore_climbs_as_its_algorithm_1_says,
    ("robustness", "clever", "paper"): baselines.test_clever_is_section_iv_d_with_fresh_points_for_every_batch,
}


def test_no_preset_of_a_paper_is_without_a_loop() -> None:
    """Every method that has a preset called after a paper stands in the table above; and so do both swarms' fitnesses."""
    presets = {
        (kind, name, preset)
        for kind in registry.KINDS
        for name, entry in registry.entries(kind).items()
        for preset in entry.presets
        if preset == "paper" or preset.endswith("-paper")
    }
    assert presets == set(TESTED)
    assert {str(one["fitness"]) for name, one in PRESETS.items() if name.endswith("-paper")} == {
        "sensitivity:preset=paper",
        "excitability:preset=paper",
    }
    for test in TESTED.values():
        text = f"{test.__name__} {test.__doc__}".lower()
        assert any(word in text for word in ("section", "algorithm", "equation")), test.__name__
