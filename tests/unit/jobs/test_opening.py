"""Targets and data, as every command opens them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput, Remark
from neurotest.jobs.life import begin
from neurotest.jobs.opening import open_counted, open_data, open_target, stored_source, stored_spec
from neurotest.target import Target
from neurotest.target.spec import TargetSpec


def network(**options: object) -> Target:
    return Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), **options)


def arrays(n: int = 5, labels: list[int] | None = None) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 2, 2), dtype=np.uint8)
    return ArraySource(x, None if labels is None else np.array(labels))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two class folders, in the order of their names bird and fish, with a file that is no image."""
    for name, grey in (("bird", 10), ("fish", 200)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((2, 2), grey + number, dtype=np.uint8)).save(tmp_path / "data" / name / f"{number}.png")
    (tmp_path / "data" / "fish" / "broken.png").write_bytes(b"no image")
    return tmp_path


def test_a_target_in_every_form() -> None:
    target, module = network(), nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    assert open_target(target) is target
    assert open_target(module).module is module
    spec, description = (
        open_target("zoo:mnist-lenet1"),
        open_target(TargetSpec(spec="zoo:mnist-lenet1", mean=(0.5,), std=(0.5,))),
    )
    assert (spec.spec, description.spec) == ("zoo:mnist-lenet1", "zoo:mnist-lenet1")
    assert (description.mean, description.std) == ((0.5,), (0.5,))
    assert spec.fingerprint != description.fingerprint


def test_data_is_cut_and_the_target_learns_its_size() -> None:
    target = network()
    source, classes = open_counted(target, arrays(5), limit=3)
    assert (len(source), classes, target.shape) == (3, 3, (1, 2, 2))
    assert len(open_data(target, arrays(5))) == 5
    assert len(open_data(target, arrays(5), limit=2)) == 2
    with pytest.raises(BadInput, match=r"\(1, 2, 2\)|1x2x2"):
        open_data(target, ArraySource(np.zeros((2, 1, 3, 3), dtype=np.uint8)))
    with pytest.raises(BadInput, match="is empty"):
        open_data(target, arrays(0))


def test_labels_are_numbered_as_the_target_numbers_its_classes(folder: Path) -> None:
    target = network(shape=(1, 2, 2), classes=("fish", "cat", "bird"))
    source = open_data(target, f"dir:{folder / 'data'}")
    assert source.labels is not None
    bright = source.read(np.arange(len(source))).reshape(len(source), -1).mean(1) > 100
    assert source.labels.tolist() == [0 if fish else 2 for fish in bright]
    assert len(source) == 4


def test_a_file_that_cannot_be_read_is_left_out_or_refused(folder: Path) -> None:
    target = network(shape=(1, 2, 2), classes=("bird", "fish", "cat"))
    assert len(open_data(target, f"dir:{folder / 'data'}", strict=False)) == 4
    for opened in (open_data, open_counted):
        with pytest.raises(BadInput, match=r"broken\.png"):
            opened(target, f"dir:{folder / 'data'}", strict=True)


def test_what_a_user_should_know_of_the_data_is_warned_about(folder: Path) -> None:
    with pytest.warns(Remark) as warned:
        open_data(network(shape=(1, 2, 2)), f"dir:{folder / 'data'}")
    skipped, numbered = (str(one.message) for one in warned)
    assert skipped.startswith("1 file skipped (first: ")
    assert "broken.png" in skipped
    assert "(0 = bird, 1 = fish, ...): pass --classes" in numbered


@pytest.mark.parametrize("prefix", ["npz", "dir", "idx", "parquet", "wav"])
def test_a_stored_source_is_found_from_anywhere(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stored_spec(f"{prefix}:some/place#x,y[:10]") == f"{prefix}:{tmp_path}/some/place#x,y[:10]"
    for spec in (f"{prefix}:/some/place", f"{prefix}:~/place"):
        assert stored_spec(spec) == spec


def test_other_sources_stay_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stored_spec("zoo:mnist/test") == "zoo:mnist/test"
    assert stored_spec("npz") == "npz"
    assert stored_spec(None) is None
    assert stored_spec(arrays()) is None  # data in memory
    monkeypatch.chdir(folder)
    target = network(shape=(1, 2, 2), classes=("bird", "fish", "cat"))
    assert stored_spec(open_data(target, "dir:data")) == f"dir:{folder / 'data'}"


def test_what_a_run_was_started_with_unless_it_is_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = arrays()
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    with begin("fuzz", tmp_path / "run", {}) as run:
        assert stored_source(run, "zoo:mnist/test", None) == "zoo:mnist/test"
        assert stored_source(run, "npz:x.npz", None) == "npz:x.npz"
        assert stored_source(run, "zoo:mnist/test", source) is source
        assert stored_source(run, None, "dir:x") == "dir:x"
        for stored in (None, "", 7):
            with pytest.raises(BadInput, match="started with seeds that a Python program held in memory"):
                stored_source(run, stored, None)
        with pytest.raises(BadInput, match="started with training data that"):
            stored_source(run, None, None, "training data")
        monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another machine"))
        assert stored_source(run, "zoo:mnist/test", None) == "zoo:mnist/test"
        assert stored_source(run, "npz:/home/me/x.npz", "npz:mine.npz") == "npz:mine.npz"
        with pytest.raises(
            BadInput, match=r"made elsewhere and names 'npz:/home/me/x\.npz' as its seeds: give the data yourself"
        ):
            stored_source(run, "npz:/home/me/x.npz", None)


def test_logits_are_those_of_the_opened_network() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    x = torch.rand(2, 1, 2, 2)
    assert torch.equal(open_target(module).logits(x), module(x))
