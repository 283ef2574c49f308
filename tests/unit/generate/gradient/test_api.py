"""The whole attack: what is counted, what is saved, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.gradient import PGD, AttackResult, Diversity, attack
from neurotest.generate.suite import shuffle
from neurotest.mutate.unit import distances
from neurotest.runs.store import Run
from neurotest.target import Target


def target(bounds: tuple[float, float] = (0.0, 1.0)) -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6), bounds=bounds)


def seeds(n: int = 12, *, labelled: bool = True) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 6, 6), dtype=np.uint8)
    network = target()
    labels = network.logits(network.prepare(x)).argmax(1).numpy()
    labels[0] = (labels[0] + 1) % 3  # one the network gets wrong
    return ArraySource(x, labels if labelled else None, spec="toy")


def run_attack(**options: object) -> AttackResult:
    return attack(target(), seeds(), **{"attack": "pgd:eps=0.3,steps=6,step=0.05", "out": False, **options})  # type: ignore[arg-type]


def test_faults_fail_again_from_what_is_saved() -> None:
    result = run_attack()
    assert len(result) == 11
    assert result.set_aside == 1
    assert result.faults > 0
    network = target()
    again = network.logits(network.prepare(result.x)).argmax(1).numpy()
    assert np.array_equal(again, result.predicted)
    assert np.array_equal(again != result.expected, result.fault)
    change = np.abs(result.x.astype(int) - result.seeds.astype(int)).max(axis=(1, 2, 3))
    assert change.max() <= int(0.3 * 255)
    assert result.distance[:, 2] == pytest.approx(change / 255, abs=1e-6)


def test_the_numbers() -> None:
    summary = run_attack().to_dict()
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= summary.keys()
    assert sum(summary["by_predicted"].values()) == summary["faults"] == summary["roots"]
    assert summary["outputs"] == 11
    # 12 to choose seeds, then per seed 6 steps, the result as saved, the result before rounding and the control.
    assert summary["forwards"] == 12 + 11 * (6 + 3)
    assert summary["backwards"] == 11 * 6
    assert summary["success"] == summary["faults"] / 11
    assert summary["random"]["success"] < summary["success"]
    assert summary["run"] is None
    assert len(run_attack().table()) == summary["families"]


def test_batches_and_seeds_of_the_random_start() -> None:
    one, other = run_attack(batch=1), run_attack(batch=11)
    assert np.array_equal(one.positions, other.positions)
    assert (one.x == other.x).mean() > 0.99  # a sign may turn where a gradient is next to 0
    assert not np.array_equal(run_attack(seed=1).x, other.x)
    assert np.array_equal(run_attack().x, other.x)


def test_no_room_no_fault_even_from_wrong_seeds() -> None:
    result = run_attack(attack="pgd:eps=0,steps=1", keep_wrong=True)
    assert len(result) == 12
    assert np.array_equal(result.x, result.seeds)
    assert result.faults == 0
    small = run_attack(attack="pgd:eps=0.001,steps=1")
    assert small.faults == 0
    assert "less than one step of 8-bit data" in small.notes[-1]


def test_float_data_in_other_bounds() -> None:
    network = target((-1.0, 3.0))
    x = np.random.default_rng(0).uniform(-1, 3, (6, 1, 6, 6)).astype(np.float32)
    result = attack(network, ArraySource(x), "pgd:eps=0.3,steps=6,step=0.05", out=False)
    assert result.x.dtype == np.float32
    assert float(np.abs(result.x - result.seeds).max()) <= 0.3 * 4 + 1e-5
    assert result.x.min() >= -1
    assert result.x.max() <= 3
    assert result.distance[:, 2].max() <= 0.3 + 1e-5
    assert result.unstable == 0


def test_without_labels_the_prediction_is_left() -> None:
    plain = attack(target(), seeds(labelled=False), "pgd:eps=0.3,steps=6,step=0.05", out=False)
    assert len(plain) == 12
    assert plain.set_aside == 0


def test_the_control_has_the_same_size() -> None:
    x = torch.full((3, 1, 4, 4), 0.5)
    x[:, :, 0] = 0.0
    moved = (x + 0.25 * torch.randint(-1, 2, x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    other = shuffle(x, moved, [0, 1, 2], 0)
    assert distances(other, x) == pytest.approx(distances(moved, x))
    assert not torch.equal(other, moved)
    assert torch.equal(shuffle(x[1:2], moved[1:2], [1], 0), other[1:2])


def test_the_run(tmp_path: Path) -> None:
    result = run_attack(out=tmp_path / "run", files=2, diversity=1.0)
    with Run.open(tmp_path / "run") as run:
        assert run["command"] == "attack"
        assert run["state"] == "done"
        assert run["summary"]["faults"] == result.faults
        assert len(run.inputs()) == 11
        stored = run.files("fault")
        assert len(stored) == len(run.files("original")) == min(2, result.faults)
        for row in stored:
            at = int(np.flatnonzero(result.positions == row.position)[0])
            assert np.array_equal(run.load_input(row.position, "fault"), result.x[at])
            assert np.array_equal(run.load_input(row.position, "original"), result.seeds[at])
    suite = data(f"npz:{tmp_path / 'run' / 'suite.npz'}#x,y")
    assert np.array_equal(suite.read(np.arange(11)), result.x)
    assert result.suite.originals is not None
    began: list[int] = []
    with pytest.raises(BadInput):
        run_attack(out=tmp_path / "run", progress=lambda done, total: began.append(done))
    assert not began  # refused before the work


def test_what_fails_leaves_no_half_run(tmp_path: Path) -> None:
    masked = Target(nn.Sequential(nn.Flatten(), Rounded()).eval(), shape=(1, 6, 6))
    with pytest.raises(BadInput, match="zero"):
        attack(masked, seeds(labelled=False), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bad_input() -> None:
    for options, message in (
        ({"layers": "cnov", "diversity": 1.0}, "matches no layer"),
        ({"layers": "0"}, "weight is 0"),
        ({"kappa": 3.0}, "no option 'kappa'"),
        ({"attack": "pdg"}, "unknown attack"),
        ({"attack": 3}, "expected a name"),
        ({"attack": PGD}, "expected a name"),
        ({"eps": 2.0}, "eps"),
        ({"diversity": -1.0}, "diversity"),
        ({"batch": 0}, "batch"),
        ({"files": -1}, "files"),
    ):
        with pytest.raises(BadInput, match=message):
            run_attack(**options)
    with pytest.raises(BadInput, match="zero"):
        attack(Target(nn.Sequential(nn.Flatten(), Rounded()).eval(), shape=(1, 6, 6)), seeds(labelled=False), out=False)


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.round())


def test_a_regulariser_given_whole() -> None:
    summary = run_attack(diversity=Diversity(weight=2.0, layers="0"), reduce="batch").to_dict()
    assert summary["diversity"] == repr(Diversity(weight=2.0, layers="0", reduce="batch"))
