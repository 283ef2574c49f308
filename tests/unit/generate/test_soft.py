"""The guides path and activation: by hand, against plain loops, as properties, and that campaigns go on where they were."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.campaign import fuzz
from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.soft import _SoftState
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.semantics.soft import Vectors, cosines
from neurotest.target import Target, Trace

pytestmark = pytest.mark.by_hand

GUIDES = ("path:critical=conductance:steps=40,per_class=2", "activation:per_class=2", "activation:per_class=2,neuron=unit")


@pytest.fixture(autouse=True)
def cache(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def subject() -> tuple[Target, ArraySource, ArraySource]:
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 12), nn.ReLU(), nn.Linear(12, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), mean=[0.25], std=[1.0])
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 12, 12)).astype(np.uint8)
    x[:, :, :6] //= np.arange(1, 61, dtype=np.uint8)[:, None, None, None] % 4 + 1
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        layers[6].bias -= logits.mean(0)  # type: ignore[operator]  # so that every class is predicted
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    return target, ArraySource(x[:30], labels[:30]), ArraySource(x[30:], labels[30:])


def rows(*values: list[list[float]]) -> Vectors:
    return Vectors(tuple(np.array(v, dtype=np.float32) for v in values), np.zeros(len(values[0]), dtype=np.int64))


def test_cosines_by_hand() -> None:
    one = rows([[3, 4], [1, 0], [0, 0], [0, 0]], [[1, 0], [0, 2], [5, 5], [0, 0]])
    other = rows([[4, 3], [-1, 0], [1, 1], [0, 0]], [[1, 0], [0, 2], [5, 5], [0, 0]])
    # 24/25 and 1; opposite and the same; silent on one side and the same; silent on both sides twice
    assert cosines(one, other).tolist() == [0.98, 0.0, 0.5, 1.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_cosines_are_symmetric_know_no_scale_and_are_one_for_equals(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    one, other = (
        Vectors(tuple(random.normal(size=(5, k)).astype(np.float32) for k in (3, 7)), np.zeros(5, np.int64)) for _ in range(2)
    )
    values = cosines(one, other)
    assert (np.abs(values) <= 1).all()
    assert np.allclose(values, cosines(other, one), atol=2e-6)
    larger = Vectors(tuple((layer * scale).astype(np.float32) for layer in other.layers), other.classes)
    assert np.allclose(values, cosines(one, larger), atol=2e-6)
    assert (cosines(one, one) == 1).all()
    halves = np.concatenate([cosines(one[:2], other[:2]), cosines(one[2:], other[2:])])
    assert halves.tolist() == values.tolist()


def plain(module: nn.Sequential, guide: str, seed: Tensor, mutant: Tensor) -> float:
    """Layer by layer, one input at a time."""
    shift = 0.25
    predicted = int(module(seed[None] - shift).argmax())
    total = 0.0
    for number in (1, 5):
        vectors = []
        for image in (seed - shift, mutant - shift):
            with torch.no_grad():
                maps = module[: number + 1](image[None])[0]
            if guide.startswith("path"):
                line = torch.linspace(0, 1, 401)[:, None, None, None] * image
                maps = module[: number + 1](line).detach().requires_grad_()
                (slopes,) = torch.autograd.grad(module[number + 1 :](maps)[:, predicted].sum(), maps)
                maps = ((slopes[1:] + slopes[:-1]) / 2 * maps.detach().diff(dim=0)).sum(0)
            elif guide.endswith("unit"):
                maps = maps.flatten()
            vectors.append([float(channel.double().mean()) for channel in maps])
        a, b = vectors
        product = sum(i * j for i, j in zip(a, b, strict=True))
        total += product / (sum(i * i for i in a) * sum(j * j for j in b)) ** 0.5
    return total / 2


def run(guide: str, outputs: int = 20) -> tuple[Fuzzer, list[Any], _SoftState, Target]:
    target, source, train = subject()
    judges = build_oracles(target, "label")
    state = build_guide(guide).start(Context(target=target, train=train, cache=True), source)
    assert isinstance(state, _SoftState)
    options = Settings(mutations=Rules95(bilateral=False), every_fault=False, batch=16)
    seeds = choose_seeds(target, source, judges)
    with Fuzzer(target, seeds, state, judges, options, Budget(outputs=outputs, forwards=20_000)) as fuzzer:
        mutants = [mutant for some in fuzzer.run() for mutant in some]
    return fuzzer, mutants, state, target


@pytest.mark.parametrize("guide", GUIDES)
def test_what_is_kept_points_elsewhere_by_plain_loops(guide: str) -> None:
    fuzzer, mutants, state, target = run(guide)
    assert mutants
    module: Any = target.module
    for mutant in mutants:
        seed, changed = (target.prepare(np.asarray(x)[None])[0] for x in (fuzzer.seeds.x[mutant.root], mutant.x))
        similarity = plain(module, guide, seed, changed)
        assert mutant.gain == pytest.approx(state.tau - similarity, abs=5e-3 if guide.startswith("path") else 1e-5)
        assert mutant.gain > 0
    details = state.details()
    assert details["kept"] == len(mutants) == state.kept
    assert details["layers"] == ["1", "5"]
    read = len(state._counted)
    extra = 80 * state.pairs if guide.startswith("path") else 0  # the pass that tests a mutant shows its activations
    assert state.forwards == extra + read * (80 if extra else 1)


def test_tau_is_the_lower_quartile_over_all_rules_and_is_read_from_the_cache() -> None:
    target, source, train = subject()
    context = Context(target=target, train=train, cache=True)
    for guide in ("path:gradient,per_class=3", "activation:per_class=3"):
        one, again = (build_guide(guide).start(context, source) for _ in range(2))
        assert isinstance(one, _SoftState)
        assert isinstance(again, _SoftState)
        assert one.tau == again.tau
        assert one.ready.threshold is not None
        assert one.ready.threshold.pairs == 9 * 95
        assert one.ready.threshold.below == pytest.approx(0.25, abs=0.01)
        assert build_guide(f"{guide},tau=0.5").start(context, source).tau == 0.5  # type: ignore[attr-defined]


def test_no_guide_knows_the_prediction() -> None:
    """Logits that say something else change nothing."""
    target, source, train = subject()
    state = build_guide("activation:tau=0.5").start(Context(target=target, train=train), source)
    assert isinstance(state, _SoftState)
    reader: Any = state.ready.reader
    one = reader.references(target.prepare(source.read(np.arange(8))))
    with torch.inference_mode():
        trace = Trace(
            torch.rand(8, 3), {reader.want: {"1": torch.from_numpy(one.layers[0]), "5": torch.from_numpy(one.layers[1])}}
        )
    assert (cosines(one, reader.of(trace)) == 1).all()
    path = build_guide("path:tau=0.5,critical=gradient").start(Context(target=target, train=train), source)
    critic: Any = path.ready.reader  # type: ignore[attr-defined]
    x = target.prepare(source.read(np.arange(8)))
    references = critic.references(x)
    moved = x.flip(3)
    assert critic.mutants(moved, references, torch.zeros(8, dtype=torch.long)).classes.tolist() == references.classes.tolist()


def test_bad_options_and_missing_training_data() -> None:
    target, source, train = subject()
    for bad, code, option in (
        ("path:reference=child", "wrong-type", "reference"),
        ("activation:quantile=2", "out-of-range", "quantile"),
        ("activation:neuron=pixel", "wrong-type", "neuron"),
        ("path:depht=3", "unknown-option", "depht"),
    ):
        with refused(code, option):
            build_guide(bad)
    for guide in ("path", "activation"):
        with refused("missing", "train"):
            build_guide(guide).start(Context(target=target), source)
        with refused("out-of-range", "per_class"):
            build_guide(f"{guide}:per_class=-1").start(Context(target=target, train=train), source)
    with refused("unknown-name", "critical"):
        build_guide("path:critical=nothing").start(Context(target=target, train=train), source)


@pytest.mark.parametrize(
    "guide", ["path:gradient,per_class=2", "activation:per_class=2", "activation:per_class=2,reference=parent"]
)
def test_an_interrupted_campaign_goes_on_exactly(tmp_path: File, guide: str) -> None:
    target, source, train = subject()
    np.savez(tmp_path / "seeds.npz", x=source.read(np.arange(30)), y=source.labels)
    np.savez(tmp_path / "train.npz", x=train.read(np.arange(30)), y=train.labels)
    common: dict[str, Any] = {
        "seeds": f"npz:{tmp_path}/seeds.npz#x,y", "train": f"npz:{tmp_path}/train.npz#x,y", "iterations": 40,
        "guide": guide, "batch": 8, "control": False, "mutations": "rules95:bilateral=false",
    }  # fmt: skip
    whole = fuzz(target, out=tmp_path / "whole", **common)
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        fuzz(target, out=tmp_path / "parts", stop=lambda: next(calls) >= 4, **common)
    parts = fuzz(target, resume=tmp_path / "parts")
    one, other = parts.to_dict(), whole.to_dict()
    for name in ("outputs", "faults", "accepted", "iterations", "forwards", "by_predicted"):
        assert one[name] == other[name], name
    assert one["guide_details"]["kept"] == other["guide_details"]["kept"]
