"""Output neurons have known meanings: describers must find them, those without labels far above chance."""

from __future__ import annotations

import pytest

from neurotest import registry, zoo
from neurotest.semantics.describe.api import described, material, output_layer
from neurotest.target import load
from neurotest_lab.studies.nsgen.validate import output_units

SUBJECTS = ("fashion-lenet1", "fashion-lenet5", "mnist-lenet5")

pytestmark = pytest.mark.skipif(not all(zoo.find(s).embedded for s in SUBJECTS), reason="the embedded networks were removed")


def right(subject: str, method: str, *, labelled: bool, cache: bool = False) -> int:
    """How many of the ten output neurons are named after their class; exemplars from odd positions of the test set."""
    from neurotest.data.spec import data

    target = load(f"zoo:{subject}")
    source = data(f"zoo:{zoo.find(subject).dataset}/test[1:1200:2]")
    work = material(target, source if labelled else source.without_labels(), output_layer(target).name, cache=cache)
    outputs = output_units(described(registry.build("describer", method), work), work)
    return sum(row.named == row.name for row in outputs.rows)


def test_class_profiles_name_the_right_class() -> None:
    assert sum(right(subject, "class-profile", labelled=True) for subject in SUBJECTS) >= 0.9 * 10 * len(SUBJECTS)


@pytest.mark.parametrize("subject", ["fashion-lenet5", "mnist-lenet5"])
def test_concept_folders_name_classes_without_labels_of_the_data(subject: str) -> None:
    spec = f"zoo:{zoo.find(subject).dataset}/train[:400]"
    assert right(subject, f"concepts:{spec}", labelled=False) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["fashion-lenet5", "mnist-lenet5"])
def test_the_trained_describer_names_classes_without_labels_of_the_data(subject: str) -> None:
    """Chance is 1 of 10; 6 of 10 by chance has a probability below .0002. It is trained (minutes) unless it is in the cache."""
    assert right(subject, "milan", labelled=False, cache=True) >= 6
