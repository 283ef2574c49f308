"""Repairs from beginning to end on a tiny network: every protocol, kill and resume, the head, what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from tests.unit.repair.subjects import bars, network, plan, target

import neurotest
from neurotest import Target, registry
from neurotest.data import ArraySource
from neurotest.jobs.targets import weights_of, with_weights
from neurotest.repair import retrain as retraining
from neurotest.repair.lessons import _answers, predictions
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocols.default import Default
from neurotest.repair.protocols.head import WANT, Head, _folded
from neurotest.repair.retrain import CAREFUL, _choose_weight, between, score
from neurotest.report import write_report
from neurotest.runs.store import Run
from neurotest.target import Probe

QUICK: dict[str, Any] = {"epochs": 2}
SMALL = {"repeats": 1, "attack": ["none"], "controls": ["none"]}


@pytest.fixture(scope="module")
def subject() -> Target:
    return target()


@pytest.fixture(scope="module")
def faults(subject: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with faults."""
    place = tmp_path_factory.mktemp("repair") / "attack"
    neurotest.attack(subject, bars(80, 1), "pgd:eps=0.3,step=0.1,steps=10", out=place)
    return place


def quick(name: str) -> dict[str, Any]:
    return {} if name == "head" else QUICK


@pytest.mark.parametrize("name", sorted(registry.entries("repair")))
def test_every_protocol_gives_a_network_of_its_own(name: str, subject: Target, faults: Path, tmp_path: Path) -> None:
    before = weights_of(subject.module)
    options = {**SMALL, **quick(name), "out": tmp_path / "r"}
    result = neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), protocol=name, **options)
    assert weights_of(subject.module) == before
    assert result.repaired is not None
    assert weights_of(result.repaired.module) == (tmp_path / "r" / "weights.safetensors").read_bytes()
    again = with_weights(target(), (tmp_path / "r" / "weights.safetensors").read_bytes())
    holdout = bars(60, 3)
    right = float((predictions(again, holdout) == holdout.labels).mean())
    assert result.sets["clean"]["after"] == pytest.approx(right)
    assert (tmp_path / "r" / "run.json").is_file()
    assert write_report(tmp_path / "r").is_file()


def test_controls_run_beside_and_say_why_they_cannot(subject: Target, faults: Path) -> None:
    options: dict[str, Any] = {"repeats": 2, "attack": ["fgsm:eps=0.1"], "out": False, **QUICK}
    result = neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), **options)
    assert set(result.controls) == {"schedule", "random", "static-pgd", "mutated"}
    assert set(result.sets) >= {"clean", "mutated", "unseen-operators", "faults-seen", "fgsm-adaptive", "fgsm-transferred"}
    assert len(result.trained) == 2 * 5
    old = neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), protocol="pgd-at", **{**options, "repeats": 1})
    assert "as many" in old.absent["random"]
    assert old.sets["clean"]["before"] == result.sets["clean"]["before"]


class Killed(Exception):
    pass


@pytest.mark.parametrize("steps", [700, 2700])
def test_killed_and_resumed_gives_the_same_weights(steps: int, subject: Target, faults: Path, tmp_path: Path) -> None:
    """In an epoch of the first training, and in a control, after the weights were written."""
    settings: dict[str, Any] = {"repeats": 2, "controls": ["mutated"], "attack": ["none"], "epochs": 5}
    data = (bars(60, 2), bars(60, 3))
    whole = neurotest.repair(subject, faults, *data, out=tmp_path / "whole", **settings)

    def die(done: int, total: int) -> None:
        if done > steps:
            raise Killed

    with pytest.raises(Killed):
        neurotest.repair(subject, faults, *data, out=tmp_path / "half", progress=die, **settings)
    with Run.open(tmp_path / "half") as run:
        assert run["state"] == "running"
    resumed = neurotest.repair(subject, faults, *data, resume=tmp_path / "half")
    files = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "half")]
    assert files[0] == files[1]
    assert resumed.sets == whole.sets
    assert resumed.controls == whole.controls
    assert not (tmp_path / "half" / "checkpoints").exists()


def test_other_data_and_settings_are_refused_on_resume(subject: Target, faults: Path, tmp_path: Path) -> None:
    def die(done: int, total: int) -> None:
        if done > 600:
            raise Killed

    with pytest.raises(Killed):
        neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), out=tmp_path / "r", progress=die, epochs=2, repeats=2)
    with refused("changed", "repeats"):
        neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), resume=tmp_path / "r", repeats=3)
    with refused("changed", "protocol"):
        neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), resume=tmp_path / "r", protocol="nss")
    with refused("changed", "training data"):
        neurotest.repair(subject, faults, bars(60, 9), bars(60, 3), resume=tmp_path / "r")


def test_without_training_data(subject: Target, faults: Path) -> None:
    result = neurotest.repair(subject, faults, None, bars(60, 3), out=False, **SMALL, epochs=10)
    assert result.protocol == "interpolated(epochs=10)"
    assert result.sets["faults-seen"]["fixed"] >= result.sets["faults-seen"]["broken"]
    assert any("no training data" in note for note in result.notes)
    with refused("missing", "train"):
        neurotest.repair(subject, faults, None, bars(60, 3), protocol="nss", out=False)


def test_weights_that_break_more_than_they_fix_are_refused(subject: Target, faults: Path, tmp_path: Path) -> None:
    """A rate that destroys the network."""
    options: dict[str, Any] = {**SMALL, "protocol": "nss", "rate": 50.0, "epochs": 1, "no_regression": True}
    result = neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), out=tmp_path / "r", **options)
    assert not result.accepted
    assert result.repaired is None
    assert not (tmp_path / "r" / "weights.safetensors").exists()
    assert json.loads((tmp_path / "r" / "run.json").read_text())["summary"]["accepted"] is False


def test_a_run_of_another_network_is_refused(faults: Path) -> None:
    other = Target(network().eval(), shape=(1, 9, 9))
    with refused("changed", "target"):
        neurotest.repair(other, faults, bars(60, 2), bars(60, 3), out=False)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"repeats": 0}, ("out-of-range", "repeats")),
        ({"unseen": 1.0}, ("out-of-range", "unseen")),
        ({"controls": ["mutatd"]}, ("unknown-name", "control")),
        ({"protocol": "defualt"}, ("unknown-name", "repair")),
        ({"epochs": 0}, ("out-of-range", "epochs")),
        ({"epoch": 2}, ("unknown-option", "epoch")),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], refusal: tuple[str, str], subject: Target, faults: Path) -> None:
    with refused(*refusal):
        neurotest.repair(subject, faults, bars(60, 2), bars(60, 3), out=False, **options)


def test_between_by_hand() -> None:
    old = {"w": torch.tensor([0.0, 2.0]), "n": torch.tensor(3)}
    new = {"w": torch.tensor([1.0, 4.0]), "n": torch.tensor(5)}
    mixed = between(old, new, 0.25)
    assert mixed["w"].tolist() == [0.25, 2.5]
    assert mixed["n"].item() == 5


@pytest.mark.parametrize(("lost", "weight"), [(0.0, 1.0), (0.2, CAREFUL)])
def test_where_a_loss_is_visible_the_weight_is_careful(lost: float, weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of the new weights is always better here; without training data a loss on other inputs ends that at 0.7."""
    alone, with_data = plan(train=False, unseen=0.0), plan()
    new = copy.deepcopy(alone.target.module)
    with torch.no_grad():
        new[-1].bias += 1.0  # a place along the line is the change of a bias
    monkeypatch.setattr(retraining, "kept_share", lambda plan, target: 1 - lost)
    monkeypatch.setattr(retraining, "score", lambda plan, module: float(module[-1].bias.detach()[0]))
    assert _choose_weight(alone, new) == weight
    assert _choose_weight(with_data, new) == 1.0


def test_an_early_stop_keeps_the_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second epoch is the best; with a patience of two the fourth is the last."""
    ready, judged = plan(), iter([0.5, 0.9, 0.8, 0.7, 0.6])
    monkeypatch.setattr(retraining, "_choose_weight", lambda plan, module, batches: 1.0)
    monkeypatch.setattr(retraining, "score", lambda plan, module: next(judged))
    protocol = Default(epochs=5, patience=2, schedule="constant")
    assert protocol.repair(ready, 0).about["epochs"] == 4
    assert next(judged) == 0.6


def test_a_head_is_folded_into_the_last_layer(subject: Target) -> None:
    """Logits of the new network are the old ones and what the correction adds, for every input."""
    added = torch.from_numpy(np.random.default_rng(0).normal(size=(37, 3)))
    source = bars(20, 5)
    with Probe(subject, WANT) as probe:
        (hidden,) = probe(subject.prepare(source.read(np.arange(20))))[WANT].values()
    expected = _answers(subject, source).double() + hidden.double() @ added[:-1] + added[-1]
    assert torch.allclose(_answers(subject.holding(_folded(subject, added)), source).double(), expected, atol=1e-4)


def test_a_head_needs_a_dense_layer_at_the_end() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 3), torch.nn.ReLU()).eval()
    with refused("unsuitable", "head"):
        _folded(Target(module, shape=(1, 9, 9)), torch.zeros(82, 3))


def test_the_head_is_never_worse_on_what_decides() -> None:
    ready: RepairPlan = plan(train=False)
    repaired = Head().repair(ready, 0)
    assert score(ready, repaired.module) >= score(ready, ready.target.module) - 1e-9


def test_a_select_run_is_learned_from_and_its_pool_is_the_control(subject: Target, tmp_path: Path) -> None:
    pool = ArraySource(bars(80, 1).read(np.arange(80)) // 2, bars(80, 1).labels, spec="pool")
    neurotest.select(subject, pool, "deepgini", 30, out=tmp_path / "s")
    options: dict[str, Any] = {"repeats": 1, "attack": ["none"], "out": False, **QUICK}
    result = neurotest.repair(subject, tmp_path / "s", bars(60, 2), bars(60, 3), pool=pool, **options)
    assert "picks" in result.plan
    assert "random" in result.controls
    other = neurotest.repair(subject, tmp_path / "s", bars(60, 2), bars(60, 3), **{**options, "controls": ["random"]})
    assert "--pool" in other.absent["random"]
