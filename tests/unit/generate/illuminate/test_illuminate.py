"""The archive by hand, ways of change, steps to the border, whole runs, and what is refused or resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate import Illuminate, IlluminateResult, illuminate
from neurotest.generate.illuminate.generator import _Archive, _Climb
from neurotest.generate.illuminate.settings import Bend, Change, Noise, Shading, ways
from neurotest.runs.store import Run
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def target() -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 100, 4))
    return Target(module.eval(), shape=(1, 12, 12), spec="toy network")


def seeds(n: int = 60) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 12, 12), dtype=np.uint8)
    network = target()
    return ArraySource(x, network.logits(network.prepare(x)).argmax(1).numpy(), spec="toy")


def run_illuminate(forwards: int = 400, **options: Any) -> IlluminateResult:
    return illuminate(options.pop("target", target()), options.pop("data", seeds()), forwards, **{"out": False, **options})


def test_the_archive_keeps_the_smallest_and_asks_for_what_is_empty() -> None:
    logits = np.array([[5.0, 4.0, 0.0], [5.0, 1.0, 3.0], [2.0, 6.0, 1.0]])
    archive = _Archive(np.array([0, 0, 1]), logits, ways=2)
    assert archive.possible == 4  # class 2 has no seeds
    way, rows, aim = archive.next(10)
    # Empty pairs, one way at a time, the least lag first: 0 -> 1 from seed 0 (1), 0 -> 2 from seed 1 (2), 1 -> 0 (4), 1 -> 2 (5).
    assert way == 0
    assert list(zip(rows.tolist(), aim.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 0), (2, 2)]
    assert archive.offer(0, 1, 0, 3.0, 7)
    assert not archive.offer(0, 1, 0, 3.0, 8)
    assert archive.offer(0, 1, 0, 1.0, 9)
    assert archive.elite[0, 1, 0] == 9
    assert archive.pairs == 1
    # The pairs that are still empty come first, by the way that was not tried.
    way, rows, aim = archive.next(10)
    assert way == 1
    assert list(zip(rows.tolist(), aim.tolist(), strict=True)) == [(1, 2), (2, 0), (2, 2)]
    assert archive.next(0)[1].size == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 9))
def test_every_seed_is_tried_once_for_every_cell_and_no_more(seed: int, most: int) -> None:
    random = np.random.default_rng(seed)
    labels, logits = random.integers(0, 3, 7), random.normal(size=(7, 3))
    archive = _Archive(labels, logits, ways=2)
    tried: set[tuple[int, int, int]] = set()
    while True:
        way, rows, aim = archive.next(most)
        if not len(rows):
            break
        for row, p in zip(rows.tolist(), aim.tolist(), strict=True):
            assert (row, p, way) not in tried
            assert p != labels[row]
            tried.add((row, p, way))
            if random.random() < 0.3:
                archive.offer(int(labels[row]), p, way, float(random.random()), 0)
    assert len(tried) == 7 * 2 * 2


@pytest.mark.parametrize("change", [Noise(), Shading(), Bend()], ids=lambda c: c.name)
def test_without_a_change_the_image_is_itself(change: Change) -> None:
    seed = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    theta = change.start(seed).requires_grad_()
    image = change.make(seed, theta)
    assert torch.allclose(image, seed, atol=1e-5)
    (slope,) = torch.autograd.grad(image.square().sum(), theta)
    assert float(slope.abs().sum()) > 0
    moved = change.make(seed, change.clip(seed, theta.detach() + 0.3 * torch.randn(theta.shape)))
    assert float(moved.min()) >= -1e-6
    assert float(moved.max()) <= 1 + 1e-6
    assert change.most(seed) > 0


def test_shading_is_one_for_all_colours_and_smooth() -> None:
    seed = torch.full((1, 3, 16, 16), 0.5)
    theta = Shading().start(seed)
    theta[0, 0, 1, 1] = 0.2
    moved = Shading().make(seed, theta) - seed
    assert torch.allclose(moved[:, 0], moved[:, 2])
    assert float((moved[..., 1:] - moved[..., :-1]).abs().max()) < 0.08
    assert [way.name for way in ways((3, 16, 16))] == ["shading", "bend", "noise"]
    assert [way.name for way in ways((40,))] == ["noise"]


def test_one_step_reaches_the_border_of_a_linear_network() -> None:
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    network = Target(module.eval(), shape=(2,))
    seed = torch.tensor([[0.52, 0.5]])
    with Engine(network, levels=None) as engine:
        faults = _Climb(engine, Noise(), seed, torch.tensor([0]), torch.tensor([1])).run(8, first=True)
    # The lead of class 1 is x1 - x0: the step goes along (-1, 1), capped at .05 sqrt(2) = .0707.
    assert faults.rows.tolist() == [0]
    assert faults.predicted.tolist() == [1]
    assert faults.x[0].tolist() == pytest.approx([0.47, 0.55], abs=1e-5)
    assert (engine.forwards, engine.backwards) == (2, 1)


def test_the_archive_holds_faults_of_what_is_saved() -> None:
    result, network = run_illuminate(), target()
    assert len(result) > 6
    again = network.logits(network.prepare(result.x)).argmax(1).numpy()
    assert np.array_equal(again, result.predicted)
    assert (again != result.expected).all()
    assert len(result.cells) == len(result)  # one per cell
    assert result.distance[:, 1] == pytest.approx(
        np.sqrt((((result.x.astype(float) - result.seeds) / 255) ** 2).sum((1, 2, 3))), rel=1e-4
    )
    summary = result.to_dict()
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= summary.keys()
    assert summary["archive"] == sum(summary["by_change"].values()) == summary["families"] == len(result.table())
    assert summary["cells"]["filled"] == len({(t, p) for t, p, _ in result.cells})
    assert summary["spent"] <= 400
    json.dumps(summary)


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 300))
def test_the_budget_is_never_exceeded(forwards: int) -> None:
    assert run_illuminate(forwards).spent <= forwards


def test_more_passes_never_empty_a_cell_or_make_it_worse() -> None:
    few, many = run_illuminate(200), run_illuminate(600)
    sizes = [
        {cell: float(size) for cell, size in zip(zip(r.expected, r.predicted, r.way, strict=True), r.distance[:, 1], strict=True)}
        for r in (few, many)
    ]
    assert many.pairs >= few.pairs
    assert set(sizes[0]) <= set(sizes[1])


def test_some_ways_only() -> None:
    result = run_illuminate(changes="noise+bend")
    assert set(result.ways) == {"bend", "noise"}
    flat = ArraySource(np.random.default_rng(0).random((40, 5), dtype=np.float32), spec="rows")
    torch.manual_seed(0)
    rows = illuminate(Target(nn.Linear(5, 3).eval(), shape=(5,)), flat, 300, out=False)
    assert rows.ways == ("noise",)
    assert rows.pairs > 1


def test_it_stops_when_everything_was_tried() -> None:
    result = run_illuminate(10**6, data=seeds(6), changes="noise")
    assert result.stopped == "every seed tried"
    assert result.spent < 1000


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = run_illuminate(out=tmp_path / "whole", batch=4)

    def stop(done: int, total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="--resume"):
        run_illuminate(out=tmp_path / "part", batch=4, progress=stop)
    result = illuminate(target(), seeds(), resume=tmp_path / "part")
    for name in ("x", "predicted", "way", "positions"):
        assert np.array_equal(getattr(result, name), getattr(whole, name))
    assert result.spent == whole.spent
    with Run.open(tmp_path / "part") as run:
        assert run["state"] == "done"
        assert len(run.inputs()) == len(result)
    with np.load(tmp_path / "part" / "faults.npz") as arrays:
        assert len(arrays["x"]) == result.all_faults >= len(result)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"forwards": 0}, ("out-of-range", "forwards")),
        ({"changes": "sparkle"}, ("out-of-range", "changes")),
        ({"steps": 0}, ("out-of-range", "steps")),
        ({"batch": 0}, ("out-of-range", "batch")),
        ({"files": -1}, ("out-of-range", "files")),
        ({"layers": "x"}, ("unknown-option", "layers")),
    ],
)
def test_bad_input(options: dict[str, Any], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        run_illuminate(**options)


def test_a_target_without_a_gradient_is_refused() -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(144, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x.flatten(1).round())

    plain = seeds().without_labels()
    with refused("no-gradient", "zero"):
        run_illuminate(target=Target(Rounded().eval(), shape=(1, 12, 12)), data=plain)
    with refused("missing", "target"):
        illuminate(target())
    with refused("unsuitable", "changes"):
        Illuminate(changes="bend").ways((5,))
