"""Forms of criteria that stay small on large networks: the same answers as the usual form, or an estimate within its error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.coverage import subjects
from torch import nn

from neurotest import registry
from neurotest.coverage import bits, cover, ranges
from neurotest.coverage.criterion import Criterion
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Layout
from neurotest.target import Target, Trace

KMNC = ["kmnc:7", "kmnc:1000", "kmnc:50,edges=neural_coverage", "kmnc:50,edges=dnn_tip", "kmnc:20,exclude_dead=true"]


def criterion(text: str) -> Criterion:
    method = registry.build("criterion", text)
    assert isinstance(method, Criterion)
    return method


def started(text: str) -> Any:
    return criterion(text).start(subjects.context(subjects.small()))


# -- KMNC: a bit per section


@pytest.mark.parametrize("text", KMNC)
@pytest.mark.parametrize("columns", [5, 1 << 16])
def test_sections_as_bits_are_those_as_bytes(text: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    as_bytes = started(text)
    monkeypatch.setattr(ranges, "BYTES", 0)
    monkeypatch.setattr(ranges, "COLUMNS", columns)
    as_bits = started(text)
    assert isinstance(as_bits, ranges._PackedSectionState)
    trace = subjects.trace(subjects.small(), subjects.images(60, 7), as_bits.want)
    half = subjects.cut(trace, np.arange(30))
    for state in (as_bytes, as_bits):
        state.update(half)
    assert as_bits.value() == as_bytes.value()
    assert as_bits.gain(trace).tolist() == as_bytes.gain(trace).tolist()
    assert as_bits.twin().value() == as_bits.value()
    sections = np.unpackbits(as_bits.bits, axis=1)[:, : as_bits.criterion.sections].astype(bool)
    assert (sections == as_bytes.bits).all()
    for mine, theirs in zip(as_bits.obligations(trace), as_bytes.obligations(trace), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_halves_as_bits_merge_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "BYTES", 0)
    whole, first = started("kmnc:30"), started("kmnc:30")
    second = first.fresh()
    assert second is not None
    trace = subjects.trace(subjects.small(), subjects.images(40, 3), whole.want)
    whole.update(trace)
    first.update(subjects.cut(trace, np.arange(17)))
    second.update(subjects.cut(trace, np.arange(17, 40)))
    first.merge(second)
    assert first.value() == whole.value()
    assert first.fresh() is None


def test_ten_million_units_fit_into_what_is_allowed() -> None:
    layout = Layout({"conv": 10_000_000})
    assert criterion("kmnc:1000").memory(layout, 1, 1) == 1_250_000_000
    assert criterion("kmnc:1000").memory(Layout({"conv": 20_000}), 1, 1) == 20_000_000


def test_a_million_units_are_measured_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of a million units: what is covered is what a plain loop over some of them finds."""
    monkeypatch.setattr(bits, "NAMED_NEURONS", 1000)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
    target = Target(module.eval(), shape=(1, 250, 250))
    x = np.random.default_rng(0).random((8, 1, 250, 250), dtype=np.float32)
    result = cover(target, x[:4], "kmnc:1000", train=x[4:], neuron="unit", layers="0", cache=False, out=False)
    value = result["kmnc:1000"].value
    assert value.total == 1_000_000_000
    with torch.no_grad():
        tested, trained = (module[0](torch.from_numpy(part)).flatten(1).numpy() for part in (x[:4], x[4:]))
    low, high = trained.min(axis=0), trained.max(axis=0)
    covered = 0
    chosen = range(0, 1_000_000, 997)
    for unit in chosen:
        inside = tested[:, unit][(tested[:, unit] >= low[unit]) & (tested[:, unit] <= high[unit])]
        covered += len({min(999, int((v - low[unit]) / (high[unit] - low[unit]) * np.float32(1000))) for v in inside})
    expected = covered / len(chosen)
    assert value.covered / 1e6 == pytest.approx(expected, rel=0.1)
    assert len(value.never["0"]) == 1000
    assert any("the first 1,000 are named" in note for note in value.notes)


# -- TKNP: the smallest hashes


def test_patterns_beyond_the_capacity_are_estimated_and_say_so() -> None:
    layout = Layout({"a": 9, "b": 7})
    few, many = (criterion(text) for text in ("tknp:3,capacity=200", "tknp:3"))
    context = Context(layouts={few.want: layout, many.want: layout})
    values = np.random.default_rng(0).random((3000, 16), dtype=np.float32)
    trace = Trace(torch.zeros(3000, 2), {few.want: {"a": torch.from_numpy(values[:, :9]), "b": torch.from_numpy(values[:, 9:])}})
    estimate, exact = (one.start(context) for one in (few, many))
    for state in (estimate, exact):
        state.update(trace)
    error = 1 / np.sqrt(198)
    assert abs(estimate.value().value / exact.value().value - 1) < 3 * error
    assert exact.value().notes == ()
    (note,) = estimate.value().notes
    assert note == "more than 200 patterns: the count is an estimate with a standard error of 7.1% (more with a larger capacity)."
    assert few.memory(layout, 10**9, 0) == 16 * 200 * 3


# -- CAC: some channels of a wide layer


def wide(inputs: int = 60, outputs: int = 50) -> tuple[Target, np.ndarray]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, inputs), nn.ReLU(), nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, 3))
    return Target(module.eval(), shape=(4,), bounds=(-9, 9)), np.random.default_rng(0).normal(size=(1200, 4)).astype(np.float32)


def causal(text: str) -> Any:
    target, x = wide()
    method = criterion(text)
    state = method.start(Context(target=target, train=ArraySource(x[:600])))
    state.update(subjects.trace(target, x[600:], method.want))
    return state


@pytest.mark.parametrize("more", ["", ",parent=previous", ",expected=dl_cc,rule=all"])
def test_chosen_connections_are_tested_as_they_are_among_all(more: str) -> None:
    everything, some = causal(f"cac:3{more}"), causal(f"cac:3,channels=20{more}")
    for all_edges, all_bits, edges, drawn in zip(
        everything.edges, everything._covered(), some.edges, some._covered(), strict=True
    ):
        rows, columns = edges.link.chosen_inputs, edges.link.chosen_outputs
        assert drawn.shape == (len(rows), len(columns))
        assert max(drawn.shape) <= 20
        assert (all_bits[np.ix_(rows, columns)] == drawn).all()
        assert (all_edges.dead()[np.ix_(rows, columns)] == edges.dead()).all()


def test_the_share_of_a_sample_is_near_that_of_all_and_says_how_near() -> None:
    everything, some = causal("cac:3").value(), causal("cac:3,channels=20").value()
    assert some.total == everything.total == 60 * 50 + 50 * 3
    (note,) = (note for note in some.notes if "drawn" in note)
    assert "460 of 3,150 connections" in note
    error = float(note.rpartition("standard error of ")[2].rstrip(".").rstrip("%")) / 100
    assert abs(some.value - everything.value) < 3 * error
    assert not any("drawn" in note for note in everything.notes)


def test_a_wide_network_no_longer_needs_gigabytes() -> None:
    method, layout = criterion("cac"), Layout({"a": 25_088, "b": 4096, "c": 4096})
    assert method.memory(layout, 1, 1) < 1e9
    with pytest.raises(BadInput, match="channels=1: expected an integer >= 2"):
        criterion("cac:channels=1")


def test_covariances_of_wide_layers_are_estimated_and_say_so() -> None:
    random = np.random.default_rng(0)
    rows = {"wide": random.normal(size=(60, 900)) @ np.diag(random.random(900)), "narrow": random.normal(size=(60, 5))}
    few, many = (criterion(text).start(subjects.context_of(rows)) for text in ("nlc:neurons=300", "nlc"))
    for state in (few, many):
        state.update(subjects.trace_of(rows))
    assert few.value().layers["narrow"] == many.value().layers["narrow"]
    assert few.value().layers["wide"].value == pytest.approx(many.value().layers["wide"].value, rel=0.1)
    assert few.value().notes == ("an estimate: of wide 300 neurons were drawn (neurons=0 takes all).",)
    assert not many.value().notes
    assert few.criterion.memory(few.layout, 60, 60) < many.criterion.memory(many.layout, 60, 60) / 8
