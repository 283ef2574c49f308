"""The doctor finds every fault it is shown, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

import neurotest
from neurotest.cli.app import app
from neurotest.data import ArraySource
from neurotest.doctor import Diagnosis, doctor
from neurotest.errors import Remark

SHAPE = (3, 8, 8)


class Healthy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(6 * 16, 4)

    def features(self, x: Tensor) -> Tensor:
        return self.pool(self.relu2(self.conv2(self.relu1(self.conv1(x))))).flatten(1)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.features(x))


class FunctionalReLU(Healthy):
    def features(self, x: Tensor) -> Tensor:
        return self.pool(functional.relu(self.conv2(functional.relu(self.conv1(x))))).flatten(1)


class UsedTwice(Healthy):
    def features(self, x: Tensor) -> Tensor:
        return self.pool(self.relu1(self.conv2(self.relu1(self.conv1(x))))).flatten(1)


class DropoutLeftOn(Healthy):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(functional.dropout(self.features(x), 0.5))


class Softmax(Healthy):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x)).softmax(1)


class LogSoftmax(Healthy):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x)).log_softmax(1)


class Sigmoids(Healthy):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x)).sigmoid()


class BatchStatistics(Healthy):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(6, track_running_stats=False)

    def features(self, x: Tensor) -> Tensor:
        return self.pool(self.relu2(self.norm(self.conv2(self.relu1(self.conv1(x)))))).flatten(1)


class NoSingles(Healthy):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6 * 16, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.features(x)))


class NotFinite(Healthy):
    """The root of a negative number on some inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc((self.features(x) - 1e-3).sqrt())


class Dead(Healthy):
    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            assert self.conv2.bias is not None
            self.conv2.bias[:3] = -1000


class NoGradient(Healthy):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x).detach()) + 0 * x.sum()


class TwoOutputs(Healthy):
    def forward(self, x: Tensor) -> Any:
        return self.fc(self.features(x)), x


class Maps(Healthy):
    def forward(self, x: Tensor) -> Any:
        return self.conv1(x)


def examine(module: nn.Module, data: Any = None, **description: Any) -> Diagnosis:
    return doctor(module.eval(), data, size=SHAPE, **description)


def images(n: int = 40, labels: np.ndarray | None = None) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, *SHAPE)).astype(np.uint8)
    return ArraySource(x, labels, spec="images")


def failing_checks(diagnosis: Diagnosis) -> set[str]:
    return {finding.check for finding in diagnosis.findings if finding.level in ("problem", "warning")}


def test_a_healthy_network() -> None:
    diagnosis = examine(Healthy(), images())
    assert diagnosis.healthy
    assert failing_checks(diagnosis) == set()
    checked = {"mode", "determinism", "batches", "finite", "outputs", "bounds", "classes", "layers", "activations", "dead"}
    assert checked | {"gradients", "memory", "speed"} == {finding.check for finding in diagnosis.findings}
    facts = diagnosis.facts
    assert facts["layers"]["pre_activation"] == {"layers": 3, "channel": 16, "unit": 6 * 64 * 2 + 4}
    assert facts["layers"]["post_activation"]["layers"] == 2
    assert facts["features"] == "fc"
    assert facts["classes"] == 4
    assert facts["memory"]["parameters"] == sum(p.numel() for p in Healthy().parameters())
    assert facts["speed"]["ms_single"] > 0
    assert diagnosis.to_dict()["problems"] == 0


@pytest.mark.parametrize(
    ("module", "check", "level", "says", "do"),
    [
        (FunctionalReLU(), "activations", "ok", "every activation is a layer; 2 are functions: relu_1, relu_2", ""),
        (UsedTwice(), "reuse", "note", "'relu1' (2 times)", "relu1#2"),
        (DropoutLeftOn(), "determinism", "problem", "it begins in layer 'fc'", "dropout left on"),
        (Softmax(), "outputs", "problem", "a softmax at the end", "--outputs probs"),
        (LogSoftmax(), "outputs", "ok", "log-probabilities", ""),
        (Sigmoids(), "outputs", "problem", "4 separate probabilities", "not supported"),
        (BatchStatistics(), "batches", "problem", "it begins in layer 'norm'", "running statistics"),
        (NoSingles(), "batches", "problem", "one input alone fails: Expected more than 1 value", "model.eval()"),
        (NotFinite(), "finite", "problem", "NaN or infinite; it begins in layer 'fc'", "division"),
        (Dead(), "dead", "warning", "3 of 12 channels", "too high learning rate"),
        (NoGradient(), "gradients", "warning", "zero everywhere", "detach()"),
        (TwoOutputs(), "runs", "problem", "returns a tuple", "returns logits"),
        (Maps(), "runs", "problem", "returns shape (2, 6, 8, 8)", "returns logits"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_faults(module: nn.Module, check: str, level: str, says: str, do: str) -> None:
    finding = examine(module, images())[check]
    assert finding.level == level
    assert says in finding.sentence
    assert do in finding.advice


def test_one_fault_is_not_reported_as_another() -> None:
    assert failing_checks(examine(DropoutLeftOn(), images())) == {"determinism"}
    assert failing_checks(examine(Softmax(), images())) == {"outputs"}
    assert failing_checks(examine(BatchStatistics(), images())) == {"batches"}
    assert failing_checks(examine(Softmax(), images(), outputs="probs")) == set()


def test_training_mode_is_reported_and_given_back() -> None:
    module = Healthy().train()
    module.relu1.eval()
    diagnosis = doctor(module, size=SHAPE)
    assert diagnosis["mode"].level == "problem"
    assert "model.eval()" in diagnosis["mode"].advice
    assert module.training
    assert module.conv1.training
    assert not module.relu1.training


def test_nothing_is_left_behind() -> None:
    module = Softmax().eval()
    target = neurotest.load(module, size=SHAPE)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    doctor(target, images())
    assert target.outputs == "logits"
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in module.modules())
    assert all(p.grad is None for p in module.parameters())


def test_exported_in_training_mode(tmp_path: Path) -> None:
    class Trained(Healthy):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.drop(self.features(x)))

    for mode in (True, False):
        batch = torch.export.Dim("batch")
        program = torch.export.export(Trained().train(mode), (torch.rand(4, *SHAPE),), dynamic_shapes=({0: batch},))
        torch.export.save(program, tmp_path / f"{mode}.pt2")
    training, exported = (doctor(f"pt2:{tmp_path / f'{mode}.pt2'}") for mode in (True, False))
    assert failing_checks(exported) == set()
    assert {"mode", "determinism"} <= failing_checks(training)
    assert "export it again after model.eval()" in training["mode"].advice
    assert "drop" in training["determinism"].sentence


# -- target and data


def labelled(module: nn.Module, low: float = 0, high: float = 1, n: int = 200) -> ArraySource:
    """Images with the labels that this network gives them when it is fed in these bounds."""
    source = images(n)
    x = torch.from_numpy(source.read(np.arange(n))).float() / 255 * (high - low) + low
    with torch.no_grad():
        labels = module.eval()(x).argmax(1).numpy()
    return ArraySource(source.read(np.arange(n)), labels, spec="labelled")


class Varied(nn.Module):
    """A network whose answer depends on the scale and the zero of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(3 * 64, 32)
        self.act = nn.Tanh()
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.flatten(x)
        return self.fc2(self.act(self.fc1((x - x.mean(1, keepdim=True)) * 3 + x.mean(1, keepdim=True))))


def test_accuracy_beside_chance() -> None:
    module = Varied()
    diagnosis = examine(module, labelled(module))
    assert diagnosis.facts["accuracy"] == 1
    assert 0 < diagnosis.facts["chance"] < 1
    assert diagnosis["accuracy"].level == "ok"


def test_other_bounds_would_do_better() -> None:
    module = Varied()
    diagnosis = examine(module, labelled(module, -1, 1), bounds=(0, 255))
    assert diagnosis["accuracy"].level == "problem"
    assert diagnosis["accuracy"].advice == "pass --bounds -1 1"


def test_classes_in_another_order() -> None:
    module = Varied()
    source = labelled(module)
    assert source.labels is not None
    shuffled = ArraySource(source.read(np.arange(len(source))), np.array([1, 2, 3, 0])[source.labels], spec="shuffled")
    diagnosis = examine(module, shuffled)
    assert "in another order it would be 100.0%" in diagnosis["accuracy"].sentence


def test_labels_out_of_reach() -> None:
    diagnosis = examine(Healthy(), images(10, np.arange(10)))
    assert diagnosis["classes"].level == "problem"
    assert "labels reach 9, the network has 4 classes" in diagnosis["classes"].sentence


def test_floats_outside_the_bounds_are_a_finding() -> None:
    x = np.random.default_rng(0).normal(size=(20, *SHAPE)).astype(np.float32)
    diagnosis = examine(Healthy(), ArraySource(x, None, spec="normalised"))
    assert diagnosis["bounds"].level == "problem"
    assert "--bounds" in diagnosis["bounds"].advice


def test_class_names() -> None:
    assert "3 class names for 4 outputs" in examine(Healthy(), images(), classes=["a", "b", "c"])["classes"].sentence


# -- the command


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(
        "from torch import nn\n"
        "def good(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))\n"
        "def bad(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Softmax(1))\n"
    )
    return str(path)


def test_command(file: str) -> None:
    result = CliRunner().invoke(app, ["doctor", f"py:{file}:good", "--size", "3x2x2", "--json", "-q"])
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert content["problems"] == 0
    assert {"check", "level", "says", "do"} == set(content["findings"][0])
    assert content["layers"]["pre_activation"]["layers"] == 2


def test_random_weights_are_a_finding(file: str, tmp_path: Path) -> None:
    finding = doctor(f"py:{file}:good", size="3x2x2")["weights"]
    assert (finding.level, finding.advice) == ("warning", "Pass --weights FILE.")
    assert "random weights: two calls give different ones" in finding.sentence
    with pytest.warns(Remark, match="random weights"):
        network = neurotest.load(f"py:{file}:good", size="3x2x2")
    torch.save(network.module.state_dict(), tmp_path / "w.pt")
    diagnosis = doctor(f"py:{file}:good", size="3x2x2", weights=tmp_path / "w.pt")
    assert all(finding.check != "weights" for finding in diagnosis.findings)


def test_command_reports_problems_and_fails_only_when_asked(file: str) -> None:
    arguments = ["doctor", f"py:{file}:bad", "--size", "3x2x2", "-q"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "pass --outputs probs" in result.stdout
    assert CliRunner().invoke(app, [*arguments, "--fail-if", "problems>0"]).exit_code == 1
    assert CliRunner().invoke(app, [*arguments, "--outputs", "probs", "--fail-if", "problems>0"]).exit_code == 0


def test_bad_input() -> None:
    with refused("missing", "size"):
        doctor(Healthy().eval())
    with refused("out-of-range", "limit"):
        examine(Healthy(), limit=0)


def test_it_can_be_called_by_its_module() -> None:
    diagnosis = neurotest.doctor(Healthy().eval(), size=SHAPE)
    assert "problem" not in diagnosis.table()
