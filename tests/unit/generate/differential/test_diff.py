"""Whole runs: what differs must differ as it is saved, what is counted, what is refused, and what is resumed."""

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

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted, Remark
from neurotest.generate.differential import DeepXplore, DiffResult, DLFuzz, deepxplore_suite, diff
from neurotest.generate.differential.api import deviant, differs
from neurotest.generate.differential.ensemble import EPSILON, Ensemble
from neurotest.jobs.parts import FOLDER
from neurotest.levels import EIGHT
from neurotest.runs.store import Run
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def network(
    seed: int, *, classes: int = 3, shape: tuple[int, ...] = (1, 6, 6), bounds: tuple[float, float] = (0.0, 1.0)
) -> Target:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * (shape[1] - 2) * (shape[2] - 2), classes))
    return Target(module.eval(), shape=shape, bounds=bounds, spec=f"net{seed}")


PAIR = (network(3), network(4))


def seeds(n: int = 40) -> ArraySource:
    return ArraySource(np.random.default_rng(0).integers(0, 256, (n, 1, 6, 6), dtype=np.uint8), spec="toy")


def run_diff(method: Any = "deepxplore:free,step=0.05,eps=0.3", targets: Any = PAIR, **options: Any) -> DiffResult:
    return diff(targets, options.pop("data", seeds()), method, **{"out": False, **options})


@pytest.mark.parametrize("constraint", ["free", "light", "occlusion", "blackout"])
def test_differences_are_differences_of_what_is_saved(constraint: str) -> None:
    result = run_diff(f"deepxplore:{constraint},step=0.5,side=3")
    again = np.stack([t.logits(t.prepare(result.x)).argmax(1).numpy() for t in PAIR], 1)
    assert np.array_equal(again, result.predictions)
    changed = (result.x != result.seeds).any((1, 2, 3))
    assert np.array_equal(result.fault, (again[:, 0] != again[:, 1]) & changed)
    before = np.stack([t.logits(t.prepare(result.seeds)).argmax(1).numpy() for t in PAIR], 1)
    assert (before[:, 0] == before[:, 1]).all()
    assert np.array_equal(before[:, 0], result.expected)
    if constraint != "blackout":
        assert result.faults > 0


def test_one_step_by_hand() -> None:
    """Two linear targets: the gradient is known, so is where one step ends."""
    weights = [torch.tensor([[1.0, -2.0], [0.5, 1.0]]), torch.tensor([[2.0, 1.0], [-1.0, 0.5]])]
    targets = []
    for weight in weights:
        module = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            module.weight.copy_(weight)
        targets.append(Target(module.eval(), shape=(2,), spec="linear"))
    x = np.array([[0.9, 0.1]], dtype=np.float32)  # both say class 0
    method = DeepXplore(constraint="free", step=0.1, steps=1, neuron_weight=0.0, push=1, eps=1.0)
    result = run_diff(method, targets, data=ArraySource(x, spec="one"))
    gradient = weights[0][0] - weights[1][0]  # (-1, -3): up with the first target's logit, down with the second's
    expected = torch.tensor(x[0]) + 0.1 * gradient / (gradient.square().mean().sqrt() + EPSILON)
    assert result.x[0] == pytest.approx(expected.clamp(0, 1).numpy(), abs=1e-5)
    assert result.predictions[0].tolist() == [int((w @ torch.from_numpy(result.x[0])).argmax()) for w in weights]


def test_a_batch_against_a_plain_loop() -> None:
    """Neurons left out, every seed for itself: one image at a time, autograd by hand."""
    method = DeepXplore(constraint="free", step=0.03, steps=4, neuron_weight=0.0, push=0, eps=0.2)
    result = run_diff(method)
    for i in range(len(result)):
        u = torch.from_numpy(result.seeds[i : i + 1].astype(np.float32) / 255)
        base, y = u.clone(), int(result.expected[i])
        for _ in range(4):
            free = u.clone().requires_grad_()
            aim = PAIR[1].logits(free)[0, y] - PAIR[0].logits(free)[0, y]
            (slope,) = torch.autograd.grad(aim, free)
            moved = u + 0.03 * slope / (slope.square().mean().sqrt() + EPSILON)
            u = torch.maximum(torch.minimum(moved, base + 0.2), base - 0.2).clamp(0, 1)
            saved = (u * 255).round() / 255
            if len({int(t.logits(saved).argmax()) for t in PAIR}) > 1 and len({int(t.logits(u).argmax()) for t in PAIR}) > 1:
                break
        assert np.abs(result.x[i].astype(int) - (u[0] * 255).round().numpy().astype(int)).max() <= 1


@settings(max_examples=8, deadline=None)
@given(eps=st.floats(0, 0.4), step=st.floats(0.01, 2), constraint=st.sampled_from(["free", "light"]), batch=st.integers(1, 50))
def test_light_stays_within_eps_and_everything_within_bounds(eps: float, step: float, constraint: str, batch: int) -> None:
    result = run_diff(DeepXplore(constraint=constraint, eps=eps, step=step, steps=3), batch=batch)  # type: ignore[arg-type]
    change = np.abs(result.x.astype(int) - result.seeds.astype(int)).max((1, 2, 3))
    assert change.max() <= eps * 255 + 0.5


def test_black_patches_are_few_and_black() -> None:
    result = run_diff("deepxplore:blackout,side=2,patches=2,steps=20,step=1")
    changed = result.x != result.seeds
    assert changed.sum((1, 2, 3)).max() <= 8
    assert (result.x[changed] == 0).all()


def test_the_numbers() -> None:
    result = run_diff()
    summary = result.to_dict()
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= summary.keys()
    assert summary["outputs"] == len(result) == summary["seeds"]
    assert sum(summary["by_predicted"].values()) == summary["faults"] == sum(row["faults"] for row in result.table())
    assert sum(summary["by_target"].values()) >= summary["faults"]
    assert summary["random"]["faults"] < summary["faults"]
    assert summary["disagreed"] > 0
    assert all(0 < share <= 1 for share in summary["coverage"])
    assert result.suite.originals is not None
    json.dumps(summary)


def test_deviants() -> None:
    predictions, expected = np.array([[0, 0], [0, 2], [1, 0], [2, 2]]), np.array([0, 0, 0, 0])
    assert differs(predictions, expected).tolist() == [False, True, True, False]
    assert deviant(predictions, expected).tolist() == [0, 2, 1, 2]
    assert differs(predictions[:, :1], expected).tolist() == [False, False, True, True]


@pytest.mark.parametrize("method", ["dlfuzz", "dlfuzz:rarely", "dlfuzz:weight", "dlfuzz:threshold+often", "adapt:population=3"])
def test_a_single_target(method: str) -> None:
    result = run_diff(method + (",step=0.1" if ":" in method else ":step=0.1"), PAIR[0])
    assert result.faults > 5
    again = PAIR[0].logits(PAIR[0].prepare(result.x)).argmax(1).numpy()
    assert np.array_equal(again != result.expected, result.fault)
    keys = {(int(p), x.tobytes()) for p, x in zip(result.positions, result.x, strict=True)}
    assert len(keys) == len(result)  # several outputs of a seed, each another image
    assert set(result.positions.tolist()) == set(range(40))
    assert len(result) > 40
    assert result.to_dict()["method"] == method.partition(":")[0]


def test_images_that_gain_coverage_are_tried_again() -> None:
    plain, again = (run_diff(f"dlfuzz:within={w},step=0.05,threshold=0.6", PAIR[0]) for w in (0, 5))
    assert again.forwards > plain.forwards


def test_float_data_and_other_bounds() -> None:
    targets = (network(3, bounds=(-1.0, 3.0)), network(4))
    x = np.random.default_rng(0).uniform(-1, 3, (30, 1, 6, 6)).astype(np.float32)
    result = run_diff("deepxplore:free,step=0.1,eps=0.5,steps=30", targets, data=ArraySource(x, spec="wide"))
    unit = torch.from_numpy((result.x + 1) / 4)
    assert np.array_equal(result.predictions[:, 1], targets[1].logits(unit).argmax(1).numpy())
    assert result.faults > 0


def test_suites_for_studies() -> None:
    result = deepxplore_suite(PAIR, seeds(), constraint="occlusion", seed=2, limit=10)
    assert set(result.positions.tolist()) <= set(range(10))
    assert np.array_equal(result.x, deepxplore_suite(PAIR, seeds(), constraint="occlusion", seed=2, limit=10).x)


def test_the_run(tmp_path: Path) -> None:
    result = run_diff(out=tmp_path / "run", files=3)
    with Run.open(tmp_path / "run") as run:
        assert run["command"] == "diff"
        assert run["summary"]["faults"] == result.faults
        assert len(run.inputs()) == len(result)
        assert len(run.files("fault")) == 3
        first = run.files("fault")[0].position
        assert np.array_equal(run.load_input(first, "fault"), result.x[first])
    assert not (tmp_path / "run" / FOLDER).exists()
    with np.load(tmp_path / "run" / "suite.npz") as arrays:
        assert np.array_equal(arrays["x"], result.x)


@pytest.mark.parametrize("method", ["deepxplore:free,step=0.05", "dlfuzz:step=0.1", "adapt:step=0.1,population=3"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, method: str) -> None:
    targets = PAIR if method.startswith("deep") else PAIR[0]
    whole = run_diff(method, targets, batch=7, out=tmp_path / "whole", data=seeds(90))

    def stop(done: int, total: int) -> None:
        if done >= 14:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"2 of .* batches"):
        run_diff(method, targets, batch=7, out=tmp_path / "part", progress=stop, data=seeds(90))
    result = diff(targets, seeds(90), resume=tmp_path / "part")
    for name in ("x", "predictions", "steps", "positions", "fault"):
        assert np.array_equal(getattr(result, name), getattr(whole, name))
    assert result.to_dict()["forwards"] == whole.to_dict()["forwards"]
    assert result.coverage == whole.coverage
    with refused("finished"):
        diff(targets, seeds(), resume=tmp_path / "part")


def test_resuming_with_other_things_is_refused(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_diff(batch=7, out=tmp_path / "part", progress=stop)
    with refused("changed", "seeds"):
        diff(PAIR, seeds(20), resume=tmp_path / "part")
    with refused("changed", "target"):
        diff((network(3), network(5)), seeds(), resume=tmp_path / "part")
    with refused("wrong-count", "targets"):
        diff(network(3), seeds(), resume=tmp_path / "part")
    (tmp_path / "part" / FOLDER / "000000.npz").write_bytes(b"no")
    with pytest.warns(Remark, match="000000.npz"):  # made again from there
        again = diff(PAIR, seeds(), resume=tmp_path / "part")
    assert (again.x == run_diff(batch=7, out=False).x).all()


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1).round())


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"targets": PAIR[0]}, ("too-few", "targets")),
        ({"method": "dlfuzz"}, ("conflict", "targets")),
        ({"targets": ()}, ("too-few", "targets")),
        ({"targets": (network(3), network(4, shape=(1, 7, 7)))}, ("wrong-shape", "targets")),
        ({"targets": (network(3), network(4, classes=4))}, ("wrong-count", "classes")),
        ({"method": "deepxplore:sparkle"}, ("wrong-type", "constraint")),
        ({"method": "deepxplore:push=2"}, ("out-of-range", "push")),
        ({"method": "deepxplore:eps=1.5"}, ("out-of-range", "eps")),
        ({"method": "deepxplore:step=0"}, ("out-of-range", "step")),
        ({"method": "deepxplore:steps=0"}, ("out-of-range", "steps")),
        ({"method": "dlfuzz:everything", "targets": PAIR[0]}, ("out-of-range", "strategy")),
        ({"method": "deepxplor"}, ("unknown-name", "differential")),
        ({"method": "deepxplore", "layers": "cnov"}, ("unknown-name", "layers")),
        ({"method": "deepxplore", "kappa": 3}, ("unknown-option", "kappa")),
        ({"batch": 0}, ("out-of-range", "batch")),
        ({"files": -1}, ("out-of-range", "files")),
    ],
)  # fmt: skip
def test_bad_input(options: dict[str, Any], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        run_diff(**options)


def test_targets_without_a_gradient_are_refused() -> None:
    rounded = Target(Rounded().eval(), shape=(1, 6, 6), spec="rounded")
    with refused("no-gradient", "zero"):
        run_diff("dlfuzz", rounded)
    with refused("no-gradient", "zero"):
        run_diff("deepxplore:neuron_weight=0", (rounded, rounded))
    beside = run_diff("deepxplore:free", (rounded, network(4)))  # the other one still has a gradient
    assert len(beside) > 0
    assert "rounded: every gradient towards the input is zero" in beside.notes[0]


def test_classes_of_other_names_are_refused() -> None:
    one, other = network(3), network(4)
    one.classes, other.classes = ("a", "b", "c"), ("a", "b", "d")
    with refused("conflict", "classes"):
        run_diff(targets=(one, other))


def test_written_as_text() -> None:
    assert registry.build("differential", "deepxplore:occlusion") == DeepXplore(constraint="occlusion")
    assert registry.build("differential", "deepxplore:preset=mnist-paper").step == 10
    assert registry.build("differential", "dlfuzz:often+rarely") == DLFuzz(strategy="often+rarely")


def test_an_ensemble_counts_every_pass() -> None:
    with Ensemble(PAIR, "pre_activation", levels=EIGHT) as ensemble:
        free = torch.rand(5, 1, 6, 6, requires_grad=True)
        seen = ensemble.forward(free)
        with torch.enable_grad():
            aim = seen[0].logits[:, 0] + seen[1].logits[:, 1]
        direction = ensemble.direction(aim, free, first=True)
        ensemble.predict(free.detach())
    assert (ensemble.forwards, ensemble.backwards) == (20, 10)
    assert direction.flatten(1).square().mean(1).sqrt().tolist() == pytest.approx([1.0] * 5, rel=1e-2)
