"""Road frames: how turns are measured, how they are split, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from neurotest.data import data, driving
from neurotest.data.fetch import get
from neurotest.errors import BadInput


def test_shifts_by_hand() -> None:
    world = np.random.default_rng(0).random((3, 40, 140))
    before = world[:, :, 20:120]
    after = np.stack([world[0, :, 17:117], world[1, :, 20:120], world[2, :, 32:132]])
    assert driving._shifts(before, after) == pytest.approx([3, 0, -12], abs=0.02)  # content moved 3 right, not, 12 left


def test_shifts_between_pixels_against_a_plain_loop() -> None:
    """A picture and the same moved by parts of a pixel: a search over many shifts, one after the other, ends at the same one."""
    from scipy.ndimage import gaussian_filter

    world = gaussian_filter(np.random.default_rng(2).random((40, 300)), 1.0)
    columns = np.arange(300)

    def moved(shift: float) -> np.ndarray:
        return np.stack([np.interp(np.arange(100, 200) - shift, columns, row) for row in world])

    for shift in (0.5, -2.25, 6.75):
        after = moved(shift)
        tried = np.arange(-10, 10, 0.25)
        plain = tried[int(np.argmin([np.abs(moved(s)[:, 20:80] - after[:, 20:80]).sum() for s in tried]))]
        assert plain == shift
        assert driving._shifts(moved(0)[None], after[None])[0] == pytest.approx(plain, abs=0.2)


def test_turns_are_medians_and_point_to_the_right() -> None:
    world = np.random.default_rng(1).random((60, 200))
    places = np.cumsum([50, 4, 4, 4, 4, 4])  # the camera moves to the right: everything far moves to the left
    frames = np.stack([world[:, p : p + 100] for p in places])
    assert driving.turns(frames) == pytest.approx([4] * 5, abs=0.05)
    frames[2] = frames[2][::-1]  # one frame that shows something else
    assert np.median(driving.turns(frames)) == pytest.approx(4, abs=0.05)


def test_blocks_for_tests_have_gaps_around_them() -> None:
    rows = driving.splits(935)
    assert {name: len(index) for name, index in rows.items()} == {"train": 575, "test": 311}
    apart = np.abs(rows["train"][:, None] - rows["test"][None]).min()
    assert apart == driving.GAP + 1
    assert (np.diff(rows["test"]) == 1).sum() >= len(rows["test"]) - 4  # four blocks


def test_frames_are_brought_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("neurotest.files.data_dir", lambda: tmp_path / "data")
    with pytest.raises(BadInput, match=r"bring frames\.npz yourself"):
        data("zoo:driving/test")
    with pytest.raises(BadInput, match="pass --from DIR"):
        get("driving")
    x = np.random.default_rng(0).integers(0, 256, (300, 60, 60, 3)).astype(np.uint8)
    folder = tmp_path / "drive"
    folder.mkdir()
    np.savez(folder / "frames.npz", x=x)
    with pytest.raises(BadInput, match="damaged, or other frames"):
        get("driving", source_dir=folder)
    monkeypatch.setattr(driving, "SHA256", hashlib.sha256(x.tobytes()).hexdigest())
    assert get("driving", source_dir=folder) == tmp_path / "data" / "driving"
    train, test = data("zoo:driving/train"), data("zoo:driving/test")
    assert train.shape == (3, 60, 60)
    assert train.labels is None
    assert train.quantities is not None
    assert len(train.quantities) == len(train)
    assert len(test) == 299 - 3 * driving.BLOCK + driving.BLOCK - (299 - 3 * driving.BLOCK)
