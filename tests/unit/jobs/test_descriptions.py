"""What a description of a target holds, and what a run that came from elsewhere may make of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from neurotest.errors import BadInput, Remark
from neurotest.jobs.life import begin
from neurotest.jobs.stored import stored_target, stored_targets, target_config
from neurotest.runs.store import Run
from neurotest.target import Target, load
from neurotest.target.load import sha256
from neurotest.target.spec import TargetSpec, absolute, source_file

CODE = """
import torch
from torch import nn


def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""
ZOO = "zoo:mnist-lenet1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """A run is opened by a user who did not make it."""
    return lambda: monkeypatch.setenv("NEUROTEST_CACHE", str(folder / "somebody else's"))


def stored(path: Path, **config: Any) -> Path:
    begin("test", path, config).close()
    return path


class Bessel(nn.Module):
    """Calls an operator that neurotest does not run by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.special.bessel_j0(x.flatten(1)))


@pytest.fixture
def archive(folder: Path) -> str:
    """A `.pt2` that only torch can open: it is opened only by somebody who trusts it."""
    odd, x = folder / "odd.pt2", torch.rand(2, 1, 2, 2)
    torch.export.save(torch.export.export(Bessel().eval(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},)), odd)
    return f"pt2:{odd}"


# -- what it holds


def test_only_what_is_known_is_stored() -> None:
    assert TargetSpec.of(load(ZOO)).plain().keys() == {"spec", "bounds", "size", "classes", "outputs"}
    own = TargetSpec.of(load("py:model.py:build")).plain()
    assert own.keys() == {"spec", "code", "bounds", "outputs"}
    assert len(own["code"]) == 64
    assert TargetSpec(spec="x", trust_pickle=True).plain() == {"spec": "x", "trust_pickle": True}
    # A number that is 0 is known.
    assert TargetSpec(bounds=(0, 1), mean=(0.0,)).plain() == {"bounds": (0, 1), "mean": (0.0,)}


def test_only_modules_are_looked_for_in_a_folder(folder: Path) -> None:
    (folder / "a_module_of_mine.py").write_text(CODE)
    module = TargetSpec.of(load("py:a_module_of_mine:build"))
    file = folder / "a_module_of_mine.py"
    assert (module.folder, module.module, module.code) == (str(folder), str(file), sha256(file))
    assert TargetSpec.of(load("py:model.py:build")).folder is None
    assert TargetSpec.of(load(ZOO)).folder is None


def test_a_network_in_memory_has_no_spec() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    description = TargetSpec.of(Target(module, shape=(1, 2, 2)))
    assert (description.spec, description.code, description.folder, description.size) == (None, None, None, (1, 2, 2))
    with pytest.raises(BadInput, match="given in memory"):
        description.open()


def test_files_that_specs_name(folder: Path) -> None:
    assert source_file(None) is None
    assert source_file("zoo:model.py") is None
    assert source_file("py:model.py:build") == Path("model.py")
    assert source_file("py:gone.py:build") == Path("gone.py")
    assert source_file("py:build") is None
    assert source_file("pt2:net.pt2") == Path("net.pt2")
    assert source_file("onnx:~/net.onnx") == Path.home() / "net.onnx"
    assert absolute("pt2:net.pt2") == f"pt2:{folder / 'net.pt2'}"
    assert absolute("py:model.py:build") == f"py:{folder / 'model.py'}:build"


@pytest.mark.parametrize("odd", [{"mean": [0.5, "x"]}, {"classes": ["a", 1]}, {"size": "1x2x2"}, {"outputs": 3}, {"spec": []}])
def test_every_value_of_a_list_is_looked_at(odd: dict[str, Any], folder: Path) -> None:
    with pytest.raises(BadInput, match=rf"{folder} describes its target with {next(iter(odd))}=.*does not fit"):
        TargetSpec.read({"spec": ZOO, **odd}, folder)


def test_what_is_not_described_stays_open(folder: Path) -> None:
    assert TargetSpec.read({"spec": ZOO, "something": "newer"}, folder) == TargetSpec(spec=ZOO)
    assert TargetSpec.read("zoo:mnist-lenet1", folder) == TargetSpec()
    whole = TargetSpec.read({"spec": ZOO, "mean": [1, 2.5], "size": [1, 2], "classes": ["a"], "trust_pickle": True}, folder)
    assert whole == TargetSpec(spec=ZOO, mean=(1, 2.5), size=(1, 2), classes=("a",), trust_pickle=True)


def test_a_new_word_goes_over_an_old_one() -> None:
    old = TargetSpec(spec="py:a.py:build", code="c", folder="f", weights="w", sha256="h", mean=(0.5,), size=(1, 2, 2))
    assert TargetSpec().over(old) == old
    assert TargetSpec(mean=(0.1,)).over(old) == TargetSpec(**{**vars(old), "mean": (0.1,)})
    # Another spec is other code; the weights must still be those of the run.
    other = TargetSpec(spec="py:b.py:build").over(old)
    assert (other.spec, other.code, other.folder, other.weights, other.sha256) == ("py:b.py:build", None, None, "w", "h")


# -- opening it


def test_code_that_has_changed_is_refused_unless_it_is_named_again(folder: Path) -> None:
    target = load("py:model.py:build")
    path = stored(folder / "run", **target_config(target))
    (folder / "model.py").write_text(CODE + "\n# a remark\n")
    with Run.open(path) as run:
        with pytest.raises(BadInput, match=r"the code: .*model\.py has changed .*--target py:.*model\.py:build"):
            stored_target(run)
        assert stored_target(run, "py:model.py:build").fingerprint == target.fingerprint
        (folder / "model.py").unlink()
        with pytest.raises(BadInput, match=r"the code: .*model\.py is gone"):
            stored_target(run)


def test_the_path_of_modules_is_left_as_it_was(folder: Path) -> None:
    (folder / "another_module_of_mine.py").write_text(CODE)
    description = TargetSpec.of(load("py:another_module_of_mine:build"))
    before = list(sys.path)
    description.open()
    with pytest.raises(BadInput):
        TargetSpec(spec="py:another_module_of_mine:absent", folder=str(folder)).open()
    assert sys.path == before


def test_trust_is_stored_for_whoever_gave_it_and_for_nobody_else(archive: str, folder: Path, elsewhere: Any) -> None:
    with pytest.raises(BadInput, match="--trust-pickle"):
        load(archive)
    target = load(archive, trust_pickle=True)
    path = stored(folder / "run", **target_config(target))
    with Run.open(path) as run:
        assert stored_target(run).fingerprint == target.fingerprint
    elsewhere()
    with Run.open(path) as run:
        with pytest.raises(BadInput, match="--target"):
            stored_target(run)
        with pytest.raises(BadInput, match="--trust-pickle"):
            stored_target(run, archive)
        assert stored_target(run, TargetSpec(spec=archive, trust_pickle=True)).fingerprint == target.fingerprint


# -- runs from elsewhere


@pytest.mark.parametrize("key", ["oracle", "guide", "method"])
@pytest.mark.parametrize("text", ["differential:py:model.py:build", "differential:pt2:net.pt2,py:x.py:y", ["py:model.py:build"]])
def test_a_stranger_s_methods_name_no_code(key: str, text: Any, folder: Path, elsewhere: Any) -> None:
    path = stored(folder / "run", target=ZOO, fingerprint=load(ZOO).fingerprint, **{key: text})
    with Run.open(path) as run:
        assert stored_target(run).spec == ZOO  # this user's own words
    elsewhere()
    with Run.open(path) as run:
        for opened in (stored_target, stored_targets):
            with pytest.raises(BadInput, match=f"made elsewhere and names the {key} .*could run code"):
                opened(run)


def test_a_stranger_s_run_with_networks_of_the_zoo_is_used(folder: Path, elsewhere: Any) -> None:
    target = load(ZOO)
    path = stored(
        folder / "run", **target_config(target), oracle="differential:zoo:mnist-lenet5", guide="kmnc:10", method="happy:1"
    )
    elsewhere()
    with Run.open(path) as run:
        assert not run.made_here
        assert stored_target(run).fingerprint == target.fingerprint
        assert [one.fingerprint for one in stored_targets(run)] == [target.fingerprint]


# -- several targets, and damage


def test_one_of_several_by_its_name(folder: Path) -> None:
    (folder / "second.py").write_text(CODE.replace("manual_seed(1)", "manual_seed(2)"))
    one, two = load("py:model.py:build"), load("py:second.py:build")
    assert one.fingerprint != two.fingerprint
    config = target_config(one, two)
    assert config["targets"] == [one.spec, two.spec]
    assert config["descriptions"] == [TargetSpec.of(one).plain(), TargetSpec.of(two).plain()]
    assert (config["target"], config["description"]) == (one.spec, TargetSpec.of(one).plain())
    assert target_config(one).keys() == {"target", "fingerprint", "description"}
    with Run.open(stored(folder / "run", **config)) as run:
        assert stored_target(run, "py:second.py:build").fingerprint == two.fingerprint
        named = TargetSpec(spec="py:second.py:build")
        assert stored_target(run, named).fingerprint == two.fingerprint
        assert [t.fingerprint for t in stored_targets(run, [one, "py:second.py:build"])] == [one.fingerprint, two.fingerprint]


def test_what_the_named_one_of_several_was_described_with_is_used(folder: Path) -> None:
    weights = {"1.weight": torch.ones(3, 4), "1.bias": torch.arange(3.0)}
    save_file(weights, folder / "w.safetensors")
    (folder / "second.py").write_text(CODE)
    one, two = load("py:model.py:build"), load("py:second.py:build", weights="w.safetensors", mean=[0.5], std=[0.5])
    with Run.open(stored(folder / "run", **target_config(one, two))) as run:
        again = stored_target(run, "py:second.py:build")
    assert (again.fingerprint, again.mean) == (two.fingerprint, (0.5,))


def test_the_first_versions_named_several_targets_by_their_specs(folder: Path) -> None:
    specs = [ZOO, "zoo:mnist-lenet5"]
    targets = [load(spec) for spec in specs]
    fingerprints = [target.fingerprint for target in targets]
    with Run.open(stored(folder / "old", target=ZOO, targets=specs, fingerprints=fingerprints)) as run:
        assert [target.fingerprint for target in stored_targets(run)] == fingerprints
        assert stored_target(run, specs[1]).fingerprint == fingerprints[1]


@pytest.mark.parametrize(
    "config",
    [
        {"target": ZOO, "fingerprints": ["a", "b"]},
        {"target": ZOO, "descriptions": {"spec": ZOO}, "fingerprint": "a"},
        {"target": ZOO, "descriptions": [{"spec": ZOO}], "fingerprints": "a"},
    ],
)
def test_damaged_descriptions(config: dict[str, Any], folder: Path) -> None:
    with Run.open(stored(folder / "run", **config)) as run, pytest.raises(BadInput, match="does not fit: it is damaged"):
        stored_target(run)


def test_runs_without_a_target(folder: Path) -> None:
    path, message = stored(folder / "run", something=1), r"names no target: .* run of 'test'"
    with Run.open(path) as run, pytest.raises(BadInput, match=message):
        stored_target(run)


def test_the_warning_about_random_weights_comes_once(folder: Path) -> None:
    (folder / "random.py").write_text(CODE.replace("    torch.manual_seed(1)\n", ""))
    with pytest.warns(Remark, match="random weights") as remarks:
        TargetSpec(spec="py:random.py:build").open()
    assert len([r for r in remarks if issubclass(r.category, Remark)]) == 1
