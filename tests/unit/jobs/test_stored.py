"""What a run stores of its target, and the gate in front of loading it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from neurotest.errors import BadInput
from neurotest.jobs.life import begin
from neurotest.jobs.stored import stored_target, stored_targets, target_config
from neurotest.runs.store import Run
from neurotest.target import Target, load
from neurotest.target.spec import TargetSpec, absolute

CODE = """
from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(CODE)
    torch.manual_seed(1)
    save_file({"1.weight": torch.randn(3, 4), "1.bias": torch.randn(3)}, tmp_path / "w.safetensors")
    return tmp_path


def described(**more: Any) -> Target:
    options = {"mean": [0.5], "std": [0.2], "bounds": (0, 2), "size": "1x2x2", "classes": ["a", "b", "c"], **more}
    return load("py:model.py:build", weights="w.safetensors", **options)


def stored(target: Target, path: Path) -> Path:
    begin("test", path, target_config(target)).close()
    return path


def test_everything_about_the_target_comes_back_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = described(outputs="logits")
    stored(target, folder / "run")
    (folder / "far").mkdir()
    monkeypatch.chdir(folder / "far")
    with Run.open(folder / "run") as run:
        again = stored_target(run)
    assert again.fingerprint == target.fingerprint
    assert (again.bounds, again.mean, again.std, again.shape, again.classes) == (
        (0.0, 2.0), (0.5,), (0.2,), (1, 2, 2), ("a", "b", "c"),
    )  # fmt: skip
    assert again.weights == target.weights
    x = torch.rand(2, 1, 2, 2)
    assert torch.equal(again.logits(x), target.logits(x))


def test_a_description_survives_the_run(folder: Path) -> None:
    description = TargetSpec.of(described())
    assert description.spec == f"py:{(folder / 'model.py').resolve()}:build"
    assert description.sha256 is not None
    assert (
        TargetSpec.read({k: list(v) if isinstance(v, tuple) else v for k, v in description.plain().items()}, folder)
        == description
    )


@pytest.mark.parametrize(
    "odd", [{"mean": "0.5"}, {"mean": [None]}, {"size": [1.5]}, {"weights": 7}, {"classes": [1]}, {"trust_pickle": "yes"}]
)
def test_odd_values_in_a_run_are_refused(odd: dict[str, Any], folder: Path) -> None:
    with pytest.raises(BadInput, match="does not fit"):
        TargetSpec.read({"spec": "zoo:mnist-lenet1", **odd}, folder)


def test_a_module_is_found_where_it_was_found_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "some_module_of_mine.py").write_text(CODE)
    target = load("py:some_module_of_mine:build", weights="w.safetensors")
    stored(target, folder / "run")
    (folder / "far").mkdir()
    monkeypatch.chdir(folder / "far")
    monkeypatch.delitem(__import__("sys").modules, "some_module_of_mine")
    with Run.open(folder / "run") as run:
        assert stored_target(run).fingerprint == target.fingerprint


def test_runs_of_the_first_version_hold_the_spec_only(folder: Path) -> None:
    target = load("zoo:mnist-lenet1")
    begin("fuzz", folder / "old", {"target": "zoo:mnist-lenet1", "fingerprint": target.fingerprint}).close()
    with Run.open(folder / "old") as run:
        assert stored_target(run).fingerprint == target.fingerprint
    begin("fuzz", folder / "own", {"target": "py:model.py:build", "fingerprint": described().fingerprint}).close()
    with Run.open(folder / "own") as run:
        with pytest.raises(BadInput, match=r"before the hash of the code it runs was kept .*--target"):
            stored_target(run)
        again = TargetSpec(
            spec="py:model.py:build", weights=str(folder / "w.safetensors"), mean=(0.5,), std=(0.2,), bounds=(0, 2)
        )
        assert stored_target(run, again).fingerprint == described().fingerprint


def test_other_class_names_are_refused(folder: Path) -> None:
    """Labels are stored as numbers: with another order they would be other classes."""
    stored(described(), folder / "run")
    with Run.open(folder / "run") as run:
        assert stored_target(run, TargetSpec(classes=("a", "b", "c"))).classes == ("a", "b", "c")
        with pytest.raises(BadInput, match=r"--classes: class 1 is 'c', but 'b' in .*run.*: leave it out"):
            stored_target(run, TargetSpec(classes=("a", "c", "b")))
        with pytest.raises(BadInput, match="class 2 is missing, but 'c' in"):
            stored_target(run, TargetSpec(classes=("a", "b")))
    stored(described(classes=None), folder / "without")
    with Run.open(folder / "without", write=True) as run:
        assert stored_target(run, TargetSpec(classes=("x", "y", "z"))).classes == ("x", "y", "z")
        run["classes"] = ["a", "b", "c"]  # the data named them
        with pytest.raises(BadInput, match="class 0 is 'x', but 'a' in"):
            stored_target(run, TargetSpec(classes=("x", "y", "z")))


def test_gone_and_changed_weights(folder: Path) -> None:
    target = described()
    stored(target, folder / "run")
    old = (folder / "w.safetensors").read_bytes()
    (folder / "w.safetensors").unlink()
    with Run.open(folder / "run") as run:
        with pytest.raises(BadInput, match=r"w\.safetensors is gone .*say where it is now with --weights FILE\."):
            stored_target(run)
        save_file({"1.weight": torch.zeros(3, 4), "1.bias": torch.zeros(3)}, folder / "w.safetensors")
        with pytest.raises(BadInput, match=r"w\.safetensors has changed .*sha256 [0-9a-f]{16} now, [0-9a-f]{16} then"):
            stored_target(run)
        (folder / "old.safetensors").write_bytes(old)
        assert stored_target(run, TargetSpec(weights=str(folder / "old.safetensors"))).fingerprint == target.fingerprint


def test_the_gate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = described()
    stored(target, folder / "run")
    monkeypatch.setenv("NEUROTEST_CACHE", str(folder / "somebody else's"))
    (folder / "model.py").write_text("raise SystemExit('this code ran')")
    with Run.open(folder / "run") as run:
        assert not run.made_here
        with pytest.raises(BadInput, match="--target"):
            stored_target(run)
        with pytest.raises(BadInput, match="--weights"):
            stored_target(run, "py:model.py:build")
        (folder / "model.py").write_text(CODE)
        assert stored_target(run, target) is target
        named = TargetSpec(spec="py:model.py:build", weights=str(folder / "w.safetensors"))
        assert stored_target(run, named).fingerprint == target.fingerprint


def test_a_zoo_network_with_a_strangers_weights_is_not_loaded_from_their_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(load("zoo:mnist-lenet1").module.state_dict(), folder / "zoo.safetensors")
    stored(load("zoo:mnist-lenet1", weights="zoo.safetensors"), folder / "run")
    monkeypatch.setenv("NEUROTEST_CACHE", str(folder / "other"))
    with Run.open(folder / "run") as run, pytest.raises(BadInput, match="--weights"):
        stored_target(run)


def test_several_targets(folder: Path) -> None:
    one, two = described(), described(mean=[0.1])
    begin("diff", folder / "run", target_config(one, two)).close()
    with Run.open(folder / "run") as run:
        assert [t.fingerprint for t in stored_targets(run)] == [one.fingerprint, two.fingerprint]
        assert stored_target(run).fingerprint == one.fingerprint
        assert stored_target(run, two) is two
        with pytest.raises(BadInput, match="with 2 targets, 1 were named"):
            stored_targets(run, [one])
        with pytest.raises(BadInput, match="not the one"):
            stored_targets(run, [two, one])


def test_a_network_in_memory_must_be_given_again(folder: Path) -> None:
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), shape=(1, 2, 2))
    stored(target, folder / "run")
    with Run.open(folder / "run") as run:
        with pytest.raises(BadInput, match="in memory"):
            stored_target(run)
        assert stored_target(run, target) is target


@pytest.mark.parametrize("spec", ["zoo:mnist-lenet1", "timm:vit", "py:package.module:build"])
def test_specs_without_a_file_stay(spec: str) -> None:
    assert absolute(spec) == spec
