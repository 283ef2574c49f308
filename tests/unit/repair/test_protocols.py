"""What every protocol and every control is trained on, counted by hand; nothing is trained here."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.repair.subjects import plan

from neurotest.data.source import Source
from neurotest.repair.operators import unit
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import CONTROLS
from neurotest.repair.protocols.adversarial import PgdTraining, StaticAdversarial
from neurotest.repair.protocols.deepsensor import DeepSensor
from neurotest.repair.protocols.default import Default
from neurotest.repair.protocols.nsgen import NsGen
from neurotest.repair.protocols.nss import Nss


@pytest.fixture(scope="module")
def ready() -> RepairPlan:
    return plan()


def ids(source: Source | None) -> set[str]:
    return set() if source is None else set(source.ids().tolist())


def test_papers_take_training_data_or_benign_inputs_and_so_many_faults(ready: RepairPlan) -> None:
    learned = ids(ready.learn.inputs)
    every = Nss().ingredients(ready, 0)
    assert (ids(every.base), ids(every.new)) == (ids(ready.train), learned)
    some = NsGen(mutants=3).ingredients(ready, 0)
    assert (ids(some.base), len(some.new or ())) == (ids(ready.train), 3)
    assert ids(some.new) < learned
    halves = DeepSensor(tests=2).ingredients(ready, 0)
    assert (len(halves.base or ()), len(halves.new or ())) == (2, 2)
    assert ids(halves.base) <= ids(ready.learn.originals)
    assert ids(halves.new) <= learned
    assert (DeepSensor().tests, DeepSensor().epochs, DeepSensor().batch, Nss().epochs, NsGen().mutants) == (500, 20, 32, 40, 1000)


def test_attacks_at_every_step_or_once(ready: RepairPlan) -> None:
    moving = PgdTraining().ingredients(ready, 0)
    assert (moving.attack is not None, moving.new, len(moving)) == (True, None, len(ready.train or ()))
    once = StaticAdversarial(tests=6, eps=0.1).ingredients(ready, 0)
    assert once.attack is None
    assert once.base is not None
    assert once.new is not None
    assert np.array_equal(np.asarray(once.base.labels), np.asarray(once.new.labels))
    before, after = (unit(source.read(np.arange(6)), ready.target.bounds) for source in (once.base, once.new))
    assert 0 < float((after - before).abs().max()) <= 0.1 + 1e-6


def test_controls_have_other_data_and_as_many_rows(ready: RepairPlan) -> None:
    own = Default().ingredients(ready, 0)
    assert own.new is not None
    schedule, random, static, mutated = (
        CONTROLS[name](ready, own, 0) for name in ("schedule", "random", "static-pgd", "mutated")
    )
    for arm in (schedule, random, static, mutated):
        assert ids(arm.base) == ids(ready.train)
        assert (arm.distil, arm.hard, arm.interpolate, arm.anchors) == (0.0, 1, False, 0)
    assert len(schedule) == len(ready.train or ())
    assert len(random.new or ()) == len(own.new)
    assert not ids(random.new) & ids(own.new)
    assert abs(len(static) - len(own)) <= len(static.new or ())
    # Mutated training images: as many rows as the protocol, no input of the run, every operator it may use equally often.
    assert (len(mutated), mutated.new, mutated.plain) == (len(own), None, own.plain)
    assert mutated.aim is not None
    assert mutated.aim.operators.names == ready.operators.names
    assert not set(ready.withheld) & set(mutated.aim.operators.names)
    assert len(np.unique(mutated.aim.weights)) == 1


def test_the_default_holds_no_withheld_operator_either(ready: RepairPlan) -> None:
    own = Default().ingredients(ready, 0)
    assert own.aim is not None
    assert not set(ready.withheld) & set(own.aim.operators.names)
    assert own.interpolate
    assert own.distil > 0
