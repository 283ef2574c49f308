"""Every kind of target through every command: small networks, small budgets, follow-up commands with nothing repeated.

The table on the page about bringing one's own model is this test's list; a cell without a test fails below.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.target.transformers import network, pictures

import neurotest
from neurotest.target import Target
from neurotest.target.load import load

COMMANDS = (
    "doctor", "check", "cover", "select", "fuzz", "swarm", "attack", "diff", "illuminate", "describe", "explain", "repair",
)  # fmt: skip
# kind: the marker of its tests; those without one need nothing but torch
KINDS: dict[str, Any] = {
    "module": None, "zoo": None, "regression": None, "py": None, "pt2": None,
    "onnx": pytest.mark.peer("onnxruntime"), "timm": pytest.mark.models("timm"),
    "torchvision": pytest.mark.models("torchvision"), "hf": pytest.mark.models("transformers"),
}  # fmt: skip
QUICK = {
    ("pt2", "cover"), ("pt2", "select"), ("pt2", "fuzz"), ("py", "attack"), ("py", "swarm"), ("onnx", "cover"), ("onnx", "fuzz"),
    ("onnx", "select"), ("timm", "select"), ("torchvision", "cover"), ("hf", "cover"), ("hf", "attack"),
    ("regression", "fuzz"), ("zoo", "attack"),
}  # fmt: skip
SEEDS, FEW = 40, 12  # inputs, and how many of them generators start from
PAGE = Path(__file__).parents[2] / "docs" / "bring-your-own-model.md"


def cells() -> list[Any]:
    listed = []
    for kind, marker in KINDS.items():
        for command in COMMANDS:
            marks = [marker] if marker is not None else []
            listed.append(pytest.param(kind, command, marks=marks if (kind, command) in QUICK else [*marks, pytest.mark.slow]))
    return listed


# -- one small network of each kind, opened as users do


def as_zoo(folder: Path) -> Target:
    return load("zoo:mnist-lenet1")


def as_regression(folder: Path) -> Target:
    """One quantity: how much more the first class has than the second."""

    class Difference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network("convnext")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.network(x)
            return scores[:, :1] - scores[:, 1:2]

    return load(Difference().eval(), size=(3, 16, 16), outputs="regression", span=(-4, 4), tolerance="5%")


def as_module(folder: Path) -> Target:
    return load(network("vit"), size=(3, 16, 16))


def as_python(folder: Path) -> Target:
    home = Path(__file__).parents[1] / "unit" / "target" / "transformers.py"
    (folder / "mine.py").write_text(home.read_text())
    return load(f"py:{folder / 'mine.py'}:build", size="3x16x16")


def as_archive(folder: Path) -> Target:
    batch = torch.export.Dim("batch")
    exported = torch.export.export(network("vit"), (torch.rand(2, 3, 16, 16),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, folder / "net.pt2")
    return load(f"pt2:{folder / 'net.pt2'}")


def as_onnx(folder: Path) -> Target:
    pytest.importorskip("onnx", reason="onnx is not installed: pip install 'neurotest[onnx]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'neurotest[onnx]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network("convnext"), (torch.rand(2, 3, 16, 16),), str(folder / "net.onnx"), dynamo=False, input_names=["x"],
            dynamic_axes={"x": {0: "n"}}, opset_version=17,
        )  # fmt: skip
    return load(f"onnx:{folder / 'net.onnx'}")


def centred(module: torch.nn.Module) -> torch.nn.Module:
    """A network of random weights that answers by its input: as it is drawn, one class outweighs every change."""
    x = torch.from_numpy(pictures(40)).div(255).repeat_interleave(2, 2).repeat_interleave(2, 3)
    with torch.no_grad():
        module.fc.bias.sub_(module.eval()((x - 0.45) / 0.225).mean(dim=0))
    return module


def as_timm(folder: Path) -> Target:
    from neurotest.target.extras import guarded_torchvision

    guarded_torchvision()
    timm = pytest.importorskip("timm", reason="timm is not installed (make test-models)")
    torch.manual_seed(0)
    torch.save(centred(timm.create_model("test_resnet", num_classes=4)).state_dict(), folder / "net.pt")
    return load("timm:test_resnet", weights=folder / "net.pt", size="3x32x32", resize=32)


def as_torchvision(folder: Path) -> Target:
    from neurotest.target.extras import guarded_torchvision

    guarded_torchvision()
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed (make test-models)")
    torch.manual_seed(0)
    torch.save(centred(models.shufflenet_v2_x0_5(num_classes=4)).state_dict(), folder / "net.pt")
    return load("torchvision:shufflenet_v2_x0_5", weights=folder / "net.pt", size="3x32x32", resize=32)


def as_huggingface(folder: Path) -> Target:
    from neurotest.target.extras import guarded_torchvision

    guarded_torchvision()
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (make test-models)")
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=4)
    transformers.ViTForImageClassification(config).save_pretrained(folder / "net")
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder / "net")
    return load(f"hf:{folder / 'net'}")


OPEN: dict[str, Callable[[Path], Target]] = {
    "module": as_module, "zoo": as_zoo, "regression": as_regression, "py": as_python, "pt2": as_archive,
    "onnx": as_onnx, "timm": as_timm, "torchvision": as_torchvision,
    "hf": as_huggingface,
}  # fmt: skip


# -- the commands, each as small as it can be


def pairs(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, labelled as the network itself answers: seeds that it gets right."""
    if target.spec.startswith("zoo:"):
        source = neurotest.data("zoo:mnist/test")
        x = source.read(np.arange(SEEDS))
    else:
        x = pictures(SEEDS)
        assert target.shape is not None
        x = x.repeat(target.shape[1] // 16, 2).repeat(target.shape[2] // 16, 3)
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        return x, logits.argmax(1).numpy() if target.bins is None else target.bins.values(logits).numpy()


def faulty_run(target: Target, data: Any, folder: Path) -> Path:
    """A campaign that finds faults: nearly any change is allowed."""
    swarm = {"norm": "linf", "radius": 0.9, "particles": 6, "iterations": 4}
    neurotest.swarm(target, data, **swarm, limit=16, out=folder / "faults")
    return folder / "faults"


def run(command: str, target: Target, folder: Path) -> Any:
    data = pairs(target)
    x, y = data
    few = {"out": folder / "run", "limit": FEW}
    if command == "doctor":
        return neurotest.doctor(target, data, limit=16)
    if command == "check":
        return neurotest.check(target, data, time=5, out=folder / "run")
    if command == "cover":
        return neurotest.cover(target, data, ["kmnc:10", "nlc"], train=data, cache=False)
    if command == "select":
        return neurotest.select(target, data, "nss", 5)
    if command == "fuzz":
        return neurotest.fuzz(target, data, forwards=150, batch=16, **few)
    if command == "swarm":
        return neurotest.swarm(target, data, iterations=2, particles=4, **few)
    if command == "attack":
        return neurotest.attack(target, data, "fgsm", eps=0.1, **few)
    if command == "diff":
        other = target.holding(copy.deepcopy(target.module))
        for parameter in other.module.parameters():
            parameter.data.mul_(0.9)
        return neurotest.diff([target, other], data, steps=2, **few)
    if command == "illuminate":
        return neurotest.illuminate(target, data, 80, **few)
    if command == "describe":
        return neurotest.describe(target, data, "combined", cache=False, limit=24)
    if command == "explain":
        again = {} if target.loaded else {"target": target}
        return neurotest.explain(faulty_run(target, data, folder), 1, train=data, **again)
    run_path = faulty_run(target, data, folder)
    return neurotest.repair(
        target, run_path, train=(x[:24], y[:24]), holdout=(x[24:], y[24:]), epochs=1, controls=[], out=folder / "repaired"
    )


# What has to hold of a result: the command did its work on all it was given, spent its budget and left nothing out.
CHECKS: dict[str, Callable[[Any], list[bool]]] = {
    "doctor": lambda r: [r.healthy, {"layers", "gradients", "speed"} <= {finding.check for finding in r.findings}],
    # Left out is only what the time was too short for, or what no quantity has: class probabilities.
    "check": lambda r: [
        r.inputs == SEEDS, *(one.ran_out or not one.skipped or "quantity" in one.summary for one in r.examined),
    ],
    "cover": lambda r: [not r.errors, r["kmnc:10"].value.total > 0, r["kmnc:10"].value.covered > 0, r["nlc"].value.covered > 0],
    "select": lambda r: [len(set(r.indices.tolist())) == 5, bool(np.isfinite(r.scores).all())],
    "fuzz": lambda r: [r.tally.forwards >= 150, r.tally.tested > 0],
    "swarm": lambda r: [r.seeds == FEW, r.tally.forwards >= FEW * 4],
    "attack": lambda r: [len(r) == FEW, r.backwards >= FEW, 0 < r.distance[:, 2].max() <= 0.1 + 1 / 255],
    "diff": lambda r: [len(r.coverage) == 2, r.disagreed < FEW, r.forwards > 0, r.backwards > 0],
    "illuminate": lambda r: [40 <= r.spent <= 80, r.backwards > 0],
    "describe": lambda r: [len(r) > 0, any(neuron.known for neuron in r)],
    "explain": lambda r: [len(r.pair.layers) > 0, r.pair.predicted[0] != r.pair.predicted[1]],
    "repair": lambda r: [
        len(r.trained) == r.repeats, r.sets["clean"]["inputs"] == SEEDS - 24,
        r.weights.is_file() if r.accepted else r.weights is None,
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "command"), cells())
@pytest.mark.filterwarnings("ignore")
def test_a_kind_of_target_in_a_command(kind: str, command: str, tmp_path: Path) -> None:
    result = run(command, OPEN[kind](tmp_path), tmp_path)
    assert all(CHECKS[command](result)), result


@pytest.mark.plain
def test_the_table_of_the_page_is_this_list() -> None:
    rows = re.findall(r"^\| `(\w+):?` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert {kind: line.split("|") for kind, line in rows if kind in KINDS} == {kind: [" yes "] * len(COMMANDS) for kind in KINDS}
    assert f"| target | {' | '.join(COMMANDS)} |" in PAGE.read_text()
