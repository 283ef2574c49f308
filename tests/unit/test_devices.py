"""Everything runs where the target is: no tensor is made on the wrong device, shapes are known without values."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.devices import APPLE, DEVICE, HOST, Detector, NoFloat64, WrongDevice, moved, on_device
from torch import nn

import neurotest
from neurotest import registry
from neurotest.campaign.neurons import neurons
from neurotest.campaign.replay import replay
from neurotest.campaign.shrink import shrink
from neurotest.data import ArraySource
from neurotest.devices import exact, placed, widest
from neurotest.measure import traces
from neurotest.measure.context import Context
from neurotest.select.scorer import OutputScorer
from neurotest.target import Probe, Target, Trace, Want
from neurotest.zoo.audio import MelNet

DEVICES = pytest.mark.parametrize("device", [pytest.param(DEVICE, id="device"), pytest.param(APPLE, id="no float64")])


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


def target(device: torch.device = DEVICE, **description: Any) -> Target:
    """On the device; made under the detector."""
    module = regression() if description else network()
    made = Target(module, shape=(1, 12, 12), mean=[0.4], std=[0.3], device=device, **description)
    moved(made.module)
    return made


def regression() -> nn.Module:
    return nn.Sequential(network(), nn.Linear(4, 1)).eval()


def on_host() -> Target:
    return Target(network(), shape=(1, 12, 12), mean=[0.4], std=[0.3])


def data(count: int = 48) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 256, (count, 1, 12, 12), dtype=np.uint8)
    plain = on_host()
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


def test_it_sees_float64_where_there_is_none() -> None:
    with Detector(APPLE):
        there = torch.ones(3, device=APPLE)
        assert there.device == APPLE
        assert on_device(there.to("mps:0"))
        for wrong in (
            there.double,
            lambda: torch.zeros(2, dtype=torch.float64, device=APPLE),
            lambda: there.sum(dtype=torch.float64),
        ):
            with pytest.raises(NoFloat64, match="float64"):
                wrong()
        with pytest.raises(NoFloat64, match="to: makes"):
            torch.ones(3).double().to(APPLE)
        with pytest.raises(NoFloat64, match=r"\.cpu\(\) comes first"):
            there.to(HOST, torch.float64)
        assert on_device(torch.ones(3).double().to(there))  # becomes float32 on the way


def test_float64_on_the_host_where_the_device_has_none() -> None:
    """With the gradients that float64 gives, back on the device."""
    with Detector(APPLE):
        there = torch.tensor([2.0, 3.0], device=APPLE, requires_grad=True)
        assert exact(there).dtype == torch.float64
        assert not on_device(exact(there))
        (gradient,) = torch.autograd.grad(exact(there).square().sum().to(there), there)
        assert on_device(gradient)
        assert gradient.tolist() == [4.0, 6.0]
        assert placed(np.ones(2), APPLE).dtype == widest(APPLE) == torch.float32
        assert placed(np.ones(2, dtype=np.int64), APPLE).dtype == torch.int64
    with Detector():
        assert on_device(exact(torch.ones(2, device=DEVICE)))
        assert placed(np.ones(2), DEVICE).dtype == torch.float64


# -- commands

FEW: dict[str, Any] = {"limit": 6, "out": False}
WORK: dict[str, Callable[[Target, Any, Path], Any]] = {
    "doctor": lambda t, d, _: neurotest.doctor(t, d, limit=24),
    "cover": lambda t, d, _: neurotest.cover(t, d, ["kmnc:10", "nbc", "nlc", "tknp", "lsc"], train=d, by="class", cache=False),
    "fuzz": lambda t, d, _: neurotest.fuzz(t, d, forwards=150, batch=32, out=False),
    "fuzz by kmnc": lambda t, d, _: neurotest.fuzz(t, d, "kmnc:10", train=d, forwards=100, batch=32, out=False),
    "pgd": lambda t, d, _: neurotest.attack(t, d, "pgd:eps=0.1,steps=3", diversity=1.0, limit=12, out=False),
    "cw": lambda t, d, _: neurotest.attack(t, d, "cw", steps=4, limit=8, out=False),
    "swarm": lambda t, d, _: neurotest.swarm(t, d, iterations=2, particles=4, **FEW),
    "sensitivity": lambda t, d, _: neurotest.swarm(t, d, fitness="sensitivity", train=d, iterations=2, particles=4, **FEW),
    "illuminate": lambda t, d, _: neurotest.illuminate(t, d, 60, limit=10, out=False),
    "describe": lambda t, d, _: neurotest.describe(t, d, "combined", cache=False, limit=24),
    "robustness": lambda t, d, _: neurotest.robustness(t, d, inputs=2, batches=10, samples=8, out=False),
    "check": lambda t, d, _: examined(t, d),
    "suspects": lambda t, d, _: neurotest.suspects(t, d),
    "gate": lambda t, d, _: neurotest.gate(t, target(t.device), d),
    "replay": lambda t, d, out: replay(fault_of(campaign(t, d, out)), t),
    "shrink": lambda t, d, out: shrink(campaign(t, d, out), target=t),
    "neurons": lambda t, d, out: neurons(campaign(t, d, out), target=t),
    "evaluate": lambda t, d, out: neurotest.evaluate(campaign(t, d, out), target=t, train=data(150), out=False),
    "explain": lambda t, d, out: explained(campaign(t, d, out), t, d),
    "repair": lambda t, d, out: neurotest.repair(
        t, campaign(t, d, out), d, held_out(), epochs=1, repeats=1, controls=["none"], attack=["none"], out=False
    ),
}


def examined(t: Target, d: Any) -> Any:
    """An examination that fails says why, and the others go on."""
    result = neurotest.check(t, d, train=d, time=4, out=False)
    assert "WrongDevice" not in str(result.to_dict())
    assert "NoFloat64" not in str(result.to_dict())
    return result


CAMPAIGNS: dict[torch.device, Path] = {}


def campaign(t: Target, d: Any, folder: Path) -> Path:
    """A copy of the campaign of this device, which is made once."""
    if t.device not in CAMPAIGNS:
        CAMPAIGNS[t.device] = folder / "first"
        neurotest.fuzz(t, d, forwards=100, batch=32, out=folder / "first")
    shutil.copytree(CAMPAIGNS[t.device], folder / "run")
    return folder / "run"


def explained(run: Path, t: Target, d: Any) -> Any:
    return neurotest.explain(run, fault_of(run).name, target=t, train=d)


def fault_of(run: Path) -> Path:
    return min((run / "faults").glob("fault-*.png"))


def held_out() -> tuple[np.ndarray, np.ndarray]:
    x, y = data(96)
    return x[48:], y[48:]


@DEVICES
@pytest.mark.parametrize("command", WORK)
@pytest.mark.filterwarnings("ignore")
def test_commands_stay_on_the_device(command: str, device: torch.device, tmp_path: Path) -> None:
    with Detector(device):
        assert WORK[command](target(device), data(), tmp_path) is not None


QUANTITY: dict[str, Any] = {"outputs": "regression", "span": (-2, 2)}


def quantities() -> tuple[np.ndarray, np.ndarray]:
    """What the network answers, so that none of the seeds is a fault."""
    x, _ = data(24)
    with torch.no_grad():
        answers = regression()((torch.from_numpy(x) / 255 - 0.4) / 0.3)
    return x, answers[:, 0].double().numpy()


OF_A_QUANTITY: dict[str, Callable[[Target, Any], Any]] = {
    "doctor": lambda t, d: neurotest.doctor(t, d),
    "fuzz": lambda t, d: neurotest.fuzz(t, d, forwards=60, batch=16, **FEW),
    "pgd": lambda t, d: neurotest.attack(t, d, "pgd:eps=0.1,steps=3", **FEW),
    "swarm": lambda t, d: neurotest.swarm(t, d, iterations=1, particles=4, moves="tiles", beside=["pgd"], **FEW),
    "dlfuzz": lambda t, d: neurotest.diff([t], d, "dlfuzz", **FEW),
    "robustness": lambda t, d: neurotest.robustness(t, d, inputs=1, batches=10, samples=4, attacks=False, out=False),
}


@DEVICES
@pytest.mark.parametrize("command", OF_A_QUANTITY)
@pytest.mark.filterwarnings("ignore")
def test_commands_on_a_quantity_stay_on_the_device(command: str, device: torch.device) -> None:
    with Detector(device):
        assert OF_A_QUANTITY[command](target(device, **QUANTITY), quantities()) is not None


OF_SOUND: dict[str, Callable[[Target, Any], Any]] = {
    "fuzz": lambda t, d: neurotest.fuzz(t, d, forwards=60, batch=16, **FEW),
    "swarm": lambda t, d: neurotest.swarm(
        t, d, norm="snr", radius=20, moves="tones", iterations=1, particles=4, beside=["noise"], evaluations=20, **FEW
    ),
    "select": lambda t, d: neurotest.select(t, d, "nss", 3),
}


@DEVICES
@pytest.mark.parametrize("command", OF_SOUND)
@pytest.mark.filterwarnings("ignore")
def test_commands_on_sound_stay_on_the_device(command: str, device: torch.device) -> None:
    sounds = np.random.default_rng(0).normal(0, 3000, (12, 1, 2048)).astype(np.int16)
    torch.manual_seed(1)
    module = MelNet(8000, 2048, 4).eval()
    with torch.no_grad():
        source = ArraySource(sounds, module(torch.from_numpy(sounds) / 32768).argmax(1).numpy())
    source.rate = 8000
    with Detector(device):
        there = Target(module, shape=(1, 2048), bounds=(-1, 1), device=device)
        moved(there.module)
        assert OF_SOUND[command](there, source) is not None


@DEVICES
@pytest.mark.parametrize("method", registry.entries("selector"))
@pytest.mark.filterwarnings("ignore")
def test_selectors_stay_on_the_device(method: str, device: torch.device) -> None:
    x, y = data()
    labels = {i: int(y[i]) for i in range(6)} if method == "neighbours" else None
    quantity = getattr(registry.find("selector", method).make, "quantities", False)
    pool: Any = quantities() if quantity else (x, y)
    with Detector(device):
        picks = neurotest.select(target(device, **(QUANTITY if quantity else {})), pool, method, 5, train=pool, labels=labels)
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
    if kind == "criterion":
        return neurotest.cover(t, d, name, train=d, cache=False, out=False)
    if kind == "guide":
        return neurotest.fuzz(t, d, name, train=d, forwards=60, batch=16, **FEW)
    if kind == "attack":
        return neurotest.attack(t, d, {"cw": "cw:steps=4,searches=2"}.get(name, name), **FEW)
    if kind == "fitness":
        return neurotest.swarm(t, d, fitness=name, train=d, iterations=2, particles=4, **FEW)
    if kind == "differential":
        several = [t, target(t.device)] if name == "deepxplore" else [t]
        return neurotest.diff(several, d, name, **FEW)
    return neurotest.fuzz(t, d, f"path:critical={name}", train=d, forwards=40, batch=16, **FEW)


@DEVICES
@pytest.mark.parametrize(("kind", "name"), RUNS)
@pytest.mark.filterwarnings("ignore")
def test_every_registered_method_stays_on_the_device(kind: str, name: str, device: torch.device) -> None:
    if kind == "attack" and registry.find("attack", name).make.__module__.endswith(".toolbox"):
        pytest.importorskip("art", reason="adversarial-robustness-toolbox is not installed (make test-peers)")
    with Detector(device):
        assert run_method(kind, name, target(device), data(24)) is not None


# -- the same results, and no copy per input

SAME: dict[str, Callable[[Target], Any]] = {
    "nss": lambda t: neurotest.select(t, data(), "nss", 10).scores,
    "deepgini": lambda t: neurotest.select(t, data(), "deepgini", 10).scores,
    "mc-dropout": lambda t: neurotest.select(t, data(), "mc-dropout", 10).scores,
    "pgd": lambda t: neurotest.attack(t, data(), "pgd:eps=0.1,steps=3", limit=12, out=False).x,
    "swarm": lambda t: counts(neurotest.swarm(t, data(), iterations=2, particles=4, **FEW)),
    "fuzz": lambda t: counts(neurotest.fuzz(t, data(), forwards=150, batch=32, out=False)),
}


def counts(result: Any) -> list[Any]:
    return [result.to_dict()[name] for name in ("outputs", "faults", "families", "roots", "by_predicted", "forwards")]


@pytest.mark.parametrize("method", SAME)
@pytest.mark.filterwarnings("ignore")
def test_results_are_those_of_the_host(method: str) -> None:
    """Random numbers are drawn on the host, whatever the device, and the arithmetic here is the host's: bit for bit."""
    with Detector():
        there = SAME[method](target())
    np.testing.assert_array_equal(there, SAME[method](on_host()))


@pytest.mark.parametrize("method", [name for name in SAME if name != "swarm"])  # its fitness is float32 there
@pytest.mark.filterwarnings("ignore")
def test_results_without_float64_are_those_with_it(method: str) -> None:
    with Detector(APPLE):
        there = SAME[method](target(APPLE))
    np.testing.assert_array_equal(there, SAME[method](on_host()))


BATCHED: dict[str, Callable[[Target, Any, int], Any]] = {
    "cover": lambda t, d, n: neurotest.cover(t, d, ["kmnc:10", "nbc", "nlc", "tknp", "lsc"], train=d, cache=False, batch=n),
    "deepgini": lambda t, d, n: neurotest.select(t, d, "deepgini", 5, batch=n),
    "nss": lambda t, d, n: neurotest.select(t, d, "nss", 5, batch=n),
    "mc-dropout": lambda t, d, n: neurotest.select(t, d, "mc-dropout", 5, batch=n),
    "pgd": lambda t, d, n: neurotest.attack(t, d, "pgd:eps=0.1,steps=3", batch=n, out=False),
    "swarm": lambda t, d, n: neurotest.swarm(t, d, iterations=2, particles=4, batch=4 * n, beside=["pgd", "margin"], out=False),
    "fuzz": lambda t, d, n: neurotest.fuzz(t, d, forwards=8 * n, batch=n, out=False),
}


@pytest.mark.parametrize("method", BATCHED)
@pytest.mark.filterwarnings("ignore")
def test_copies_to_the_host_grow_with_batches_and_not_with_inputs(method: str) -> None:
    """Four times as many inputs in as many batches."""

    def copies(inputs: int) -> int:
        with Detector() as detector:
            BATCHED[method](target(), data(inputs), inputs // 3)
        return sum(detector.to_host.values())

    few, many = copies(48), copies(192)
    assert few > 0
    assert many - few < 144 // 4, f"{few} copies for 48 inputs, {many} for 192"


# -- without values


def without_values() -> tuple[Target, Target]:
    """The same network on the meta device and on the host."""
    meta, host = Target(network().to("meta"), shape=(1, 12, 12), mean=[0.4], std=[0.3], device="meta"), on_host()
    meta._surveys = {(1, 12, 12): host.survey()}  # a survey looks at values; layers and their shapes are the same
    return meta, host


def test_shapes_on_the_meta_device() -> None:
    meta, host = without_values()
    x = torch.empty(5, 1, 12, 12, device="meta")
    with Probe(meta, Want(), Want(neuron="unit"), Want(layers="post_activation")) as probe, Probe(host, Want()) as other:
        trace, real = probe(x), other(torch.rand(5, 1, 12, 12))
    assert meta.logits(x).shape == trace.logits.shape == real.logits.shape == (5, 4)
    assert trace.probs.shape == (5, 4)
    for want, layers in trace.recorded.items():
        assert layers
        for name, values in layers.items():
            assert values.device.type == "meta"
            assert values.shape == (5, next(layer for layer in host.survey().layers if layer.name == name).neurons(want.neuron))


# Those whose want is whole maps run layers again, with their values.
@pytest.mark.parametrize(
    "name", [name for name in registry.entries("criterion") if registry.build("criterion", name).want.keep == "reduced"]
)
@pytest.mark.filterwarnings("ignore")
def test_criteria_read_values_in_one_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A criterion takes a trace of the meta device as soon as `traces.array`, where values become numpy arrays, gives some."""
    meta, host = without_values()
    criterion = registry.build("criterion", name)
    state = criterion.start(Context(host, ArraySource(*data())))
    with Probe(meta, criterion.want) as probe:
        trace = probe(torch.empty(5, 1, 12, 12, device="meta"))
    with pytest.raises(NotImplementedError, match="meta"):
        state.update(trace)
    monkeypatch.setattr(traces, "array", lambda tensor: np.zeros(tensor.shape, dtype=np.float32))
    state.update(Trace(torch.zeros(5, 4), trace.recorded))
    assert state.seen == 5


@pytest.mark.parametrize(
    "name", [name for name, entry in registry.entries("selector").items() if issubclass(entry.make, OutputScorer)]
)
def test_scorers_of_outputs_on_the_meta_device(name: str) -> None:
    scorer = registry.build("selector", name)
    samples = [] if scorer.partner is None else [scorer.partner.mutants]
    scores = scorer.score(torch.empty(5, *samples, 4, device="meta", dtype=torch.float64))
    assert scores.device.type == "meta"
    assert scores.shape == (5,)
