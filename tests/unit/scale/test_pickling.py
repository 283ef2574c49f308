"""What travels to a worker: specs of targets and data, never the data of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refused
from torch import nn

import neurotest
from neurotest.scale.tasks import pack, unpack
from neurotest.target import Target, Want

pytestmark = pytest.mark.plain


def same(one: neurotest.Source, other: neurotest.Source) -> None:
    assert np.array_equal(one.read(np.arange(len(one))), other.read(np.arange(len(other))))
    assert (one.labels is None) == (other.labels is None)
    if one.labels is not None and other.labels is not None:
        assert np.array_equal(one.labels, other.labels)
    assert (one.classes, one.shape, one.dtype, one.positions.tolist()) == (
        other.classes, other.shape, other.dtype, other.positions.tolist(),
    )  # fmt: skip


def test_data_of_a_file_travel_as_their_spec(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(npz.parent)
    whole = neurotest.data("npz:data.npz[4:]")
    part = whole.take(np.array([7, 3, 3, 20]))
    monkeypatch.chdir("/")  # a worker may stand elsewhere
    same(unpack(pack(part)), part)
    same(unpack(pack(part.take(np.array([2])))), part.take(np.array([2])))
    pixels = int(np.prod(whole.shape)) * len(whole)
    assert len(pack(whole)) < pixels


def test_data_in_memory_travel_themselves() -> None:
    rng = np.random.default_rng(0)
    source = neurotest.data((rng.random((6, 3, 4, 4), dtype=np.float32), np.arange(6)))
    paired = source.take(np.array([5, 1])).with_originals(source.take(np.array([0, 1])))
    again = unpack(pack(paired))
    same(again, paired)
    assert again.originals is not None
    assert paired.originals is not None
    same(again.originals, paired.originals)


def test_pictures_travel_as_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
                tmp_path / name / f"{i}.png"
            )
    source = neurotest.data(f"dir:{tmp_path}")
    part = source.take(np.array([4, 0]))
    again = unpack(pack(part))
    same(again, part)
    (tmp_path / "b" / "1.png").write_bytes(b"")
    with refused("unreadable", "file"):
        again.read(np.array([0]))


def test_a_changed_number_of_inputs_is_noticed(npz: Path) -> None:
    from neurotest.data import spec

    content = pack(neurotest.data(f"npz:{npz}"))
    np.savez(npz, x=np.zeros((3, 1, 8, 8), np.uint8), y=np.zeros(3, int))
    spec._opened.cache_clear()
    with refused("changed", "data"):
        unpack(content)


def test_a_target_travels_as_its_description_and_is_loaded_once() -> None:
    target = neurotest.load("zoo:mnist-lenet1")
    content = pack(target)
    weights = sum(p.numel() * p.element_size() for p in target.module.parameters())
    assert len(content) < weights
    one, other = unpack(content), unpack(content)
    assert one is other
    assert one.fingerprint == target.fingerprint


def test_a_network_in_memory_travels_itself() -> None:
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), shape=(1, 2, 2))
    assert unpack(pack(target)).fingerprint == target.fingerprint
    loaded = neurotest.load("zoo:mnist-lenet1")
    other = loaded.holding(neurotest.load("zoo:mnist-lenet4").module)  # other weights than its spec gives
    assert unpack(pack(other)).fingerprint == other.fingerprint != loaded.fingerprint


def test_a_network_that_was_changed_after_it_was_loaded_is_noticed() -> None:
    target = neurotest.load("zoo:mnist-lenet1")
    with __import__("torch").no_grad():
        next(target.module.parameters()).add_(1)
    target.__dict__.pop("fingerprint", None)
    with refused("changed", "target"):
        unpack(pack(target))


def test_wants_are_found_in_other_processes() -> None:
    """Text hashes to other numbers there, so a hash that is kept must not travel."""
    want = Want(layers="features", inputs=True)
    assert b"_hash" not in pack(want)
    assert unpack(pack({want: 1}))[want] == 1
