"""Profiles: right numbers, mergeable, saved whole, and tied to one target."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest.errors import BadInput
from neurotest.target import Probe, Profile, Target, Want

WANT = Want(layers="pre_activation")


def target(seed: int = 0) -> Target:
    torch.manual_seed(seed)
    return Target(nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval(), shape=(1, 3, 3))


SUBJECT = target()
X = torch.rand(24, 1, 3, 3, generator=torch.Generator().manual_seed(5))


def profile(parts: list[torch.Tensor], want: Want = WANT) -> Profile:
    built = Profile.empty(SUBJECT, want)
    with Probe(SUBJECT, want) as probe:
        for part in parts:
            built.update(probe(part))
    return built


def same(a: Profile, b: Profile) -> None:
    assert a.count == b.count
    assert list(a.layers) == list(b.layers)
    for name, moments in a.layers.items():
        assert np.array_equal(moments.low, b.layers[name].low)
        assert np.array_equal(moments.high, b.layers[name].high)
        assert np.allclose(moments.mean, b.layers[name].mean, rtol=1e-12, atol=1e-12)
        assert np.allclose(moments.variance, b.layers[name].variance, rtol=1e-10, atol=1e-14)


def test_the_numbers_are_those_of_the_activations() -> None:
    built = profile([X])
    with torch.no_grad():
        conv = SUBJECT.module[0](X)
        values = {"0": conv.mean((2, 3)).double().numpy(), "3": SUBJECT.module(X).double().numpy()}
    assert built.count == 24
    for name, expected in values.items():
        moments = built.layers[name]
        assert np.allclose(moments.low, expected.min(0), atol=1e-6)
        assert np.allclose(moments.high, expected.max(0), atol=1e-6)
        assert np.allclose(moments.mean, expected.mean(0), atol=1e-6)
        assert np.allclose(moments.variance, expected.var(0), atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(0, 24), neuron=st.sampled_from(["channel", "unit"]))
def test_two_halves_merged_equal_the_whole(cut: int, neuron: str) -> None:
    want = Want(layers="pre_activation", neuron=neuron)
    halves = [profile([part], want) if len(part) else Profile.empty(SUBJECT, want) for part in (X[:cut], X[cut:])]
    halves[0].merge(halves[1])
    same(halves[0], profile([part for part in (X[:cut], X[cut:]) if len(part)], want))


def test_merging_leaves_the_other_alone() -> None:
    first, second = Profile.empty(SUBJECT, WANT), profile([X[:10]])
    first.merge(second)
    first.merge(profile([X[10:]]))
    same(second, profile([X[:10]]))


def test_batches_do_not_matter() -> None:
    pieces, whole = profile(list(X.split(5))), profile([X])
    assert pieces.count == whole.count
    for name, moments in pieces.layers.items():  # a forward pass of another size rounds differently
        for key in ("low", "high", "mean", "variance"):
            assert np.allclose(getattr(moments, key), getattr(whole.layers[name], key), atol=1e-6), (name, key)


def test_profiles_of_other_targets_or_neurons_are_not_merged() -> None:
    for other in (Profile.empty(target(1), WANT), Profile.empty(SUBJECT, replace(WANT, neuron="unit"))):
        with refused("conflict", "merge"):
            profile([X]).merge(other)


def test_whole_maps_have_no_profile() -> None:
    with refused("conflict", "keep"):
        Profile.empty(SUBJECT, Want(keep="map"))


# -- files


@pytest.mark.parametrize("name", ["p", "p.json", "p.safetensors", "train.v2"])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, name: str) -> None:
    built = profile([X])
    written = built.save(tmp_path / name)
    assert written.is_file()
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".safetensors"]
    read = Profile.load(tmp_path / name, SUBJECT)
    same(read, built)
    assert (read.want, read.fingerprint) == (WANT, SUBJECT.fingerprint)
    read.merge(built)  # and it can go on
    assert read.count == 48


def test_names_with_a_dot_do_not_overwrite_each_other(tmp_path: Path) -> None:
    profile([X]).save(tmp_path / "train.v1")
    profile([X[:3]]).save(tmp_path / "train.v2")
    assert Profile.load(tmp_path / "train.v1").count == 24


def test_a_foreign_profile_is_refused(tmp_path: Path) -> None:
    file = profile([X]).save(tmp_path / "p")
    with refused("changed", "target"):
        Profile.load(file, target(1))
    described = Target(SUBJECT.module, shape=(1, 3, 3), mean=[0.5], std=[0.5])
    with refused("changed", "target"):
        Profile.load(file, described)


def test_a_profile_of_other_layers_is_refused(tmp_path: Path) -> None:
    """As one is that was made before functions were layers."""
    old = profile([X])
    del old.layers["3"]
    with refused("changed", "layers"):
        Profile.load(old.save(tmp_path / "p"), SUBJECT)


def test_missing_files(tmp_path: Path) -> None:
    with refused("not-found"):
        Profile.load(tmp_path / "absent.json")
    file = profile([X]).save(tmp_path / "p")
    file.with_suffix(".safetensors").unlink()
    with refused("not-found"):
        Profile.load(file)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, part: float) -> None:
    file = profile([X]).save(tmp_path / "p").with_suffix(suffix)
    content = file.read_bytes()
    file.write_bytes(content[: int(part * len(content))])
    with pytest.raises(BadInput):
        Profile.load(tmp_path / "p")


def test_a_changed_number_is_refused(tmp_path: Path) -> None:
    numbers = profile([X]).save(tmp_path / "p").with_suffix(".safetensors")
    content = bytearray(numbers.read_bytes())
    content[-1] ^= 1
    numbers.write_bytes(content)
    with refused("damaged", "digest"):
        Profile.load(tmp_path / "p")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"format": 1},  # means were read in another way
        {"layers": {"nowhere": 3}},
        {"layers": None},
        {"want": {"colour": "red"}},
        {"want": {"neuron": "cell"}},
        {"want": None},
    ],
    ids=str,
)
def test_a_changed_description_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    file = profile([X]).save(tmp_path / "p")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(BadInput):
        Profile.load(file)


@pytest.mark.parametrize("key", ["fingerprint", "want", "layers", "sha256", "format"])
def test_a_description_that_lacks_something_is_refused(tmp_path: Path, key: str) -> None:
    file = profile([X]).save(tmp_path / "p")
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != key}))
    with pytest.raises(BadInput):
        Profile.load(file)


@pytest.mark.parametrize("text", ["[]", "7", "null", '"profile"', "\xff"])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = profile([X]).save(tmp_path / "p")
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput):
        Profile.load(file)
