"""What a command will take: by hand, against a plain count, and on the command line."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import neurotest
from neurotest.campaign.forecast import _forwards, forecast_fuzz
from neurotest.cli.app import app
from neurotest.coverage.forecast import forecast_cover
from neurotest.errors import BadInput
from neurotest.jobs import forecast as module
from neurotest.jobs.forecast import Forecast, ForecastPart, footprint, slope, span
from neurotest.select.forecast import forecast_select
from neurotest.target import Want

DATA = "zoo:mnist/test[:120]"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENOUGH", 0.0)


def test_sums_by_hand() -> None:
    plan = Forecast((ForecastPart("training data", 100, 0.5), ForecastPart("data", 20, 0.25)), {"states": 2e9, "inputs": 1e6}, 40)
    assert (plan.passes, plan.seconds, plan.bytes) == (120, 55.0, 2.001e9)
    assert plan.rows()[-1] == ["all", "120", "55 s"]
    assert "about 2.0 GB (states 2.0 GB, inputs 1.0 MB)" in plan.sentence()
    assert [span(s) for s in (3, 30, 300, 9000)] == ["3.0 s", "30 s", "5.0 min", "2.5 h"]


def test_the_slope_leaves_out_what_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.cumsum([0, 10 + 8 * 0.5, 0, 10 + 24 * 0.5]))
    monkeypatch.setattr("neurotest.jobs.forecast.time.perf_counter", lambda: float(next(clock)))
    assert slope(lambda count: None, 500) == (pytest.approx(0.5), 8 + 8 + 24)


def test_a_quick_network_is_timed_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENOUGH", 1e9)
    counts: list[int] = []
    _, run = slope(counts.append, 200)
    assert counts == [8, 8, 24, 24, 96, 96, 200]
    assert run == sum(counts)


def test_memory_against_a_plain_count() -> None:
    target, source = neurotest.load("zoo:mnist-lenet1"), neurotest.data(DATA)
    want = Want(neuron="unit")
    need = footprint(target, source, [want], 50, states=7.0)
    layers = target.survey().find("pre_activation")
    assert need["recorded layers"] == 2 * 4 * 50 * sum(math.prod(layer.shape) for layer in layers)
    assert need["inputs of a batch"] == 50 * 784 * 5  # a byte as read, four as a float
    assert need["states"] == 7.0


def test_more_inputs_need_no_more_memory() -> None:
    target = neurotest.load("zoo:mnist-lenet1")
    one, other = (footprint(target, neurotest.data(f"zoo:mnist/test[:{n}]"), [Want()], 50) for n in (100, 1000))
    del one["the process so far"], other["the process so far"]
    assert one == other


def test_cover() -> None:
    plan = forecast_cover("zoo:mnist-lenet1", DATA, ["kmnc:100", "nc"], train="zoo:mnist/train[:200]")
    assert {part.what: part.passes for part in plan.parts} == {"opening the data": 0, "training data": 200, "data": 120}
    assert plan.seconds > plan.parts[0].seconds > 0
    neurons = neurotest.load("zoo:mnist-lenet1").survey().find("pre_activation")
    assert plan.memory["states"] >= 100 * sum(layer.neurons("channel") for layer in neurons)
    assert len(forecast_cover("zoo:mnist-lenet1", DATA, "nc").parts) == 2  # learns nothing from training data


def test_select() -> None:
    plan = forecast_select("zoo:mnist-lenet1", DATA, ["dsa"], train="zoo:mnist/train[:150]")
    assert [part.passes for part in plan.parts] == [0, 150, 120]


def test_fuzz() -> None:
    plan = forecast_fuzz("zoo:mnist-lenet1", DATA, "random", forwards=900, batch=32)
    assert {part.what: part.passes for part in plan.parts} == {"opening the data": 0, "choosing seeds": 120, "mutants": 900}
    both = forecast_fuzz("zoo:mnist-lenet1", DATA, "kmnc:10", forwards=900, batch=32, train="zoo:mnist/train[:100]")
    assert [part.what for part in both.parts][2:] == ["mutants", "control (random)"]
    neurons = sum(layer.neurons("channel") for layer in neurotest.load("zoo:mnist-lenet1").survey().find("pre_activation"))
    assert (plan.memory["recorded layers"], both.memory["recorded layers"]) == (0, 2 * 4 * 32 * neurons)
    assert (plan.memory["states"], both.memory["states"]) >= (0, 10 * neurons)


def test_a_batch_of_mutants_may_be_larger_than_the_seeds() -> None:
    plan = forecast_fuzz("zoo:mnist-lenet1", "zoo:mnist/test[:30]", "random", forwards=900, batch=64)
    assert plan.memory["inputs of a batch"] == 64 * 784 * 5


def test_budgets() -> None:
    assert _forwards({"forwards": 100, "seconds": 5.0}, 0.1) == (50, ())
    assert _forwards({"forwards": 100, "faults": 3}, 0.1) == (100, ("it may end earlier, by faults.",))
    passes, (sentence,) = _forwards({"faults": 3}, 0.1)
    assert passes is None
    assert "limits faults" in sentence


def test_too_few_inputs() -> None:
    with pytest.raises(BadInput, match="times 24 inputs"):
        forecast_cover("zoo:mnist-lenet1", "zoo:mnist/test[:10]", "nc")


@pytest.mark.parametrize(
    "arguments",
    [
        ["cover", "zoo:mnist-lenet1", DATA, "--criteria", "nc"],
        ["select", "zoo:mnist-lenet1", DATA],
        ["fuzz", "zoo:mnist-lenet1", DATA, "--guide", "random", "--forwards", "100", "--batch", "32"],
    ],
)
def test_on_the_command_line(arguments: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    content = json.loads(CliRunner().invoke(app, [*arguments, "--plan", "--json", "-q"]).stdout)["plan"]
    assert content["passes"] == sum(part["passes"] for part in content["parts"]) >= 120
    assert content["memory"] > 1e7
    assert content["minutes"] == content["seconds"] / 60
    text = CliRunner().invoke(app, [*arguments, "--plan"]).stdout
    assert "what it will take" in text
    assert "memory: about" in text
    assert not list(tmp_path.iterdir())  # nothing was begun
