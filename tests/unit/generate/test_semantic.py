"""The guide nsgen: what it keeps, what it counts, and that a campaign goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

from neurotest.campaign import fuzz
from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.semantic import NSGenState
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.target import Target

BASE = "describe=class-profile,per_class=2,critical=conductance:2"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def subject() -> tuple[Target, ArraySource, ArraySource]:
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 12), nn.ReLU(), nn.Linear(12, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), classes=["cat", "dog", "cow"])
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 12, 12)).astype(np.uint8)
    x[:, :, :6] //= np.arange(1, 61, dtype=np.uint8)[:, None, None, None] % 4 + 1
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        layers[6].bias -= logits.mean(0)  # type: ignore[operator]  # so that every class is predicted
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    return target, ArraySource(x[:30], labels[:30]), ArraySource(x[30:], labels[30:])


def run(guide: str, outputs: int = 25, **options: Any) -> tuple[Fuzzer, list[Any], GuideState]:
    target, source, train = subject()
    judges = build_oracles(target, "label")
    seeds = choose_seeds(target, source, judges)
    state = build_guide(guide).start(Context(target=target, train=train, cache=True), source)
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=False, batch=16, **options)
    mutants = []
    with Fuzzer(target, seeds, state, judges, settings, Budget(outputs=outputs, forwards=20_000)) as fuzzer:
        for some in fuzzer.run():
            mutants += some
    return fuzzer, mutants, state


def test_what_is_kept_has_another_path_and_what_is_counted_adds_up() -> None:
    fuzzer, mutants, state = run(f"nsgen:{BASE},distance=jaccard")
    assert isinstance(state, NSGenState)
    assert mutants
    ready = state.ready
    assert state.kept == fuzzer.tally.accepted == len(mutants)
    target, seeds = ready.target, fuzzer.seeds
    for mutant in mutants:  # one by one, from what would be saved
        reference = ready.reader.references(target.prepare(np.asarray(seeds.x[[mutant.root]])))
        path = ready.reader.mutants(target.prepare(np.asarray(mutant.x)[None]), reference)
        similarity = float(ready.similarity(reference, path)[0])
        assert similarity < ready.tau
        assert mutant.gain == pytest.approx(ready.tau - similarity, abs=1e-6)
    details = state.details()
    assert details["dpd_count"] == len(mutants)
    assert details["dpd_rate"] == state.below / state.pairs
    assert state.kept <= state.below <= state.pairs
    assert details["layers"] == [layer.name for layer in ready.layers]
    assert details["distinct paths"] == ready.comparer.distinct
    assert fuzzer.tally.forwards > fuzzer.tally.tested * (1 + ready.passes)


def test_label_only_keeps_exactly_what_is_taken_for_something_else_and_runs_nothing_more() -> None:
    _, mutants, state = run(f"nsgen:{BASE},mode=label-only")
    assert mutants
    assert all(m.fault for m in mutants)  # seeds are right, so another prediction is a fault
    assert state.forwards == 0


def test_a_label_free_guide_does_not_know_the_prediction() -> None:
    """The same neurons with any logits give the same similarity, unless labels belong to the path or to the target."""
    target, source, train = subject()
    for mode, same in (("no-label", True), ("random-words", True), ("with-label", False)):
        state = build_guide(f"nsgen:{BASE},mode={mode},distance=jaccard,tau=0.5").start(
            Context(target=target, train=train), source
        )
        assert isinstance(state, NSGenState)
        reader = state.ready.reader
        one = reader.references(target.prepare(source.read(np.arange(8))))
        other = one[np.arange(8)]
        other.labels[:] = np.roll(other.labels, 1, axis=1)
        assert bool((state.ready.similarity(one, other) == 1).all()) is same


def test_parents_instead_of_roots() -> None:
    _, roots, _ = run(f"nsgen:{BASE},distance=jaccard,tau=0.6", 40, max_depth=4)
    _, parents, state = run(f"nsgen:{BASE},distance=jaccard,tau=0.6,reference=parent", 40, max_depth=4)
    assert isinstance(state, NSGenState)
    assert any(key < 0 for key in state._paths_of)
    assert [m.content for m in roots] != [m.content for m in parents]


def test_presets_and_options() -> None:
    assert build_guide("nsgen:preset=paper").mode == "with-label"  # type: ignore[attr-defined]  # see tests/unit/papers
    assert build_guide("nsgen").defaults == {}
    assert build_guide("nsgen:preset=code").defaults["validity"] == "valid:preset=nsgen-code"
    assert build_guide("nsgen:preset=without-nldg").distance == "jaccard"  # type: ignore[attr-defined]
    assert build_guide("nsgen:with-label").mode == "with-label"  # type: ignore[attr-defined]
    assert build_guide("nsgen", layers="1").layers == "1"  # type: ignore[attr-defined]
    for bad, code, option in (
        ("nsgen:mode=x", "out-of-range", "mode"),
        ("nsgen:reference=child", "wrong-type", "reference"),
        ("nsgen:quantile=2", "out-of-range", "quantile"),
        ("nsgen:depht=3", "unknown-option", "depht"),
    ):
        with refused(code, option):
            build_guide(bad)
    with refused("conflict", "layers"):
        build_guide("nsgen", neuron="unit")


def test_it_needs_training_data_and_paths_that_differ() -> None:
    target, source, train = subject()
    with refused("missing", "train"):
        build_guide("nsgen").start(Context(target=target), source)
    with refused("empty", "tau"):
        build_guide(f"nsgen:{BASE},critical=all").start(Context(target=target, train=train), source)
    nameless = Target(target.module, shape=target.shape)
    unnamed = ArraySource(train.read(np.arange(30)), train.labels)
    with refused("missing", "classes"):
        build_guide("nsgen:with-label,describe=attributes").start(Context(target=nameless, train=unnamed), unnamed)


def test_an_interrupted_campaign_goes_on_exactly(tmp_path: Path) -> None:
    target, source, train = subject()
    np.savez(tmp_path / "seeds.npz", x=source.read(np.arange(30)), y=source.labels)
    np.savez(tmp_path / "train.npz", x=train.read(np.arange(30)), y=train.labels)
    common: dict[str, Any] = {
        "seeds": f"npz:{tmp_path}/seeds.npz#x,y", "train": f"npz:{tmp_path}/train.npz#x,y", "iterations": 40,
        "guide": f"nsgen:{BASE},distance=jaccard", "batch": 8, "control": False, "mutations": "rules95:bilateral=false",
    }  # fmt: skip
    whole = fuzz(target, out=tmp_path / "whole", **common)
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        fuzz(target, out=tmp_path / "parts", stop=lambda: next(calls) >= 4, **common)
    parts = fuzz(target, resume=tmp_path / "parts")
    one, other = whole.to_dict(), parts.to_dict()
    for name in ("outputs", "faults", "accepted", "iterations", "forwards", "by_predicted"):
        assert one[name] == other[name], name
    assert one["guide_details"]["dpd_count"] == other["guide_details"]["dpd_count"]
