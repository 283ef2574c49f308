"""Everything runs where the target is: no tensor is made on the wrong device, shapes are known without values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.devices import DEVICE, HOST, Detector, WrongDevice, moved, on_device
from torch import nn

import neurotest
from neurotest import registry
from neurotest.target import Probe, Target, Want


def network() -> nn.Module:
    """Random weights whose answers differ from input to input: as they are drawn, one class outweighs all others."""
    torch.manual_seed(3)
    layers = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(6 * 16, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 4),
    ).eval()  # fmt: skip
    with torch.no_grad():
        layers[-1].bias.sub_(layers((torch.rand(64, 1, 12, 12) - 0.4) / 0.3).mean(dim=0))
    return layers


def target() -> Target:
    """On the device; made under the detector."""
    made = Target(network(), shape=(1, 12, 12), mean=[0.4], std=[0.3], device=DEVICE)
    moved(made.module)
    return made


def data(count: int = 48) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 256, (count, 1, 12, 12), dtype=np.uint8)
    plain = Target(network(), shape=(1, 12, 12), mean=[0.4], std=[0.3])
    with torch.no_grad():
        return x, plain.logits(plain.prepare(x)).argmax(1).numpy()


# -- the detector itself


def test_it_sees_a_tensor_on_the_wrong_device() -> None:
    with Detector():
        there, here = torch.ones(3, device=DEVICE), torch.ones(3)
        with pytest.raises(WrongDevice, match="add"):
            there + here
        with pytest.raises(TypeError, match=r"\.cpu\(\) comes first"):
            there.numpy()
        assert on_device(there * 2 + torch.tensor(1.0))  # a single number goes with any device
        assert on_device(torch.zeros_like(there))
        assert torch.ones(2, device=there.device).device == DEVICE
        assert there.cpu().device == HOST
        assert not on_device(there.cpu().to(HOST))
        assert on_device(here.to(there))
        assert on_device(here.to(DEVICE)[here.long()])


def test_it_counts_copies_to_the_host() -> None:
    with Detector() as detector:
        x = torch.ones(3, device=DEVICE)
        x.cpu()
        float(x.sum())
    assert detector.to_host["cpu"] == 1
    assert sum(detector.to_host.values()) >= 2


# -- commands

WORK: dict[str, Callable[[Target, Any], Any]] = {
    "doctor": lambda t, d: neurotest.doctor(t, d, limit=24),
    "cover": lambda t, d: neurotest.cover(t, d, ["kmnc:10", "nbc", "nlc", "tknp", "lsc"], train=d, by="class", cache=False),
    "fuzz": lambda t, d: neurotest.fuzz(t, d, forwards=150, batch=32, out=False),
    "fuzz by kmnc": lambda t, d: neurotest.fuzz(t, d, "kmnc:10", train=d, forwards=100, batch=32, out=False),
    "pgd": lambda t, d: neurotest.attack(t, d, "pgd:eps=0.1,steps=3", diversity=1.0, limit=12, out=False),
    "cw": lambda t, d: neurotest.attack(t, d, "cw", steps=4, limit=8, out=False),
    "swarm": lambda t, d: neurotest.swarm(t, d, iterations=2, particles=4, limit=6, out=False),
    "sensitivity": lambda t, d: neurotest.swarm(
        t, d, fitness="sensitivity", train=d, iterations=2, particles=4, limit=6, out=False
    ),
    "illuminate": lambda t, d: neurotest.illuminate(t, d, 60, limit=10, out=False),
    "describe": lambda t, d: neurotest.describe(t, d, "combined", cache=False, limit=24),
}


@pytest.mark.parametrize("command", WORK)
@pytest.mark.filterwarnings("ignore")
def test_commands_stay_on_the_device(command: str) -> None:
    with Detector():
        assert WORK[command](target(), data()) is not None


SELECTORS = registry.entries("selector")


@pytest.mark.parametrize(
    "method", [m for m, e in SELECTORS.items() if m not in ("mc-dropout", "bald") and not getattr(e.make, "quantities", False)]
)
@pytest.mark.filterwarnings("ignore")
def test_selectors_stay_on_the_device(method: str) -> None:
    x, y = data()
    labels = {i: int(y[i]) for i in range(6)} if method == "neighbours" else None
    with Detector():
        picks = neurotest.select(target(), (x, y), method, 5, train=(x, y), labels=labels)
    assert len(picks.indices) == 5


# Every method that is registered: one that is added is tested here without a word.
RUNS: list[Any] = [
    *(pytest.param("criterion", name, id=f"criterion {name}") for name in registry.entries("criterion")),
    *(pytest.param("guide", name, id=f"guide {name}") for name in registry.entries("guide")),
    *(pytest.param("attack", name, id=f"attack {name}") for name in registry.entries("attack")),
    *(pytest.param("fitness", name, id=f"fitness {name}") for name in registry.entries("fitness")),
    *(pytest.param("differential", name, id=f"differential {name}") for name in registry.entries("differential")),
    *(pytest.param("critical", name, id=f"critical {name}") for name in registry.entries("critical")),
]


def run_method(kind: str, name: str, t: Target, d: Any) -> Any:
    few: dict[str, Any] = {"limit": 6, "out": False}
    if kind == "criterion":
        return neurotest.cover(t, d, name, train=d, cache=False, out=False)
    if kind == "guide":
        return neurotest.fuzz(t, d, name, train=d, forwards=60, batch=16, **few)
    if kind == "attack":
        return neurotest.attack(t, d, {"cw": "cw:steps=4,searches=2"}.get(name, name), **few)
    if kind == "fitness":
        return neurotest.swarm(t, d, fitness=name, train=d, iterations=2, particles=4, **few)
    if kind == "differential":
        several = [t, target()] if name == "deepxplore" else [t]
        return neurotest.diff(several, d, name, **few)
    return neurotest.fuzz(t, d, f"path:critical={name}", train=d, forwards=40, batch=16, **few)


@pytest.mark.parametrize(("kind", "name"), RUNS)
@pytest.mark.filterwarnings("ignore")
def test_every_registered_method_stays_on_the_device(kind: str, name: str) -> None:
    if kind == "attack" and registry.find("attack", name).make.__module__.endswith(".toolbox"):
        pytest.importorskip("art", reason="adversarial-robustness-toolbox is not installed (make test-peers)")
    with Detector():
        assert run_method(kind, name, target(), data(24)) is not None


def test_results_are_those_of_the_host() -> None:
    with Detector():
        there = neurotest.select(target(), data(), "nss", 10)
    here = neurotest.select(Target(network(), shape=(1, 12, 12), mean=[0.4], std=[0.3]), data(), "nss", 10)
    assert there.indices.tolist() == here.indices.tolist()


# -- without values


def test_shapes_on_the_meta_device() -> None:
    meta = Target(network().to("meta"), shape=(1, 12, 12), mean=[0.4], std=[0.3], device="meta")
    x = torch.empty(5, 1, 12, 12, device="meta")
    host = Target(network(), shape=(1, 12, 12), mean=[0.4], std=[0.3])
    meta._surveys = {(1, 12, 12): host.survey()}  # a survey looks at values; layers and their shapes are the same
    with Probe(meta, Want(), Want(neuron="unit"), Want(layers="post_activation")) as probe, Probe(host, Want()) as other:
        trace, real = probe(x), other(torch.rand(5, 1, 12, 12))
    assert trace.logits.shape == real.logits.shape == (5, 4)
    for want, layers in trace.recorded.items():
        assert layers
        for name, values in layers.items():
            assert values.device.type == "meta"
            assert values.shape == (5, next(layer for layer in host.survey().layers if layer.name == name).neurons(want.neuron))
