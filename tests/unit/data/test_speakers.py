"""Recordings by speaker: a folder like AudioMNIST's, kept as arrays, read from the material, and what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neurotest.data import data, fetch, speakers
from neurotest.errors import BadInput

soundfile = pytest.importorskip("soundfile")


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two people, two digits; FLAC, and one WAV of another rate."""
    monkeypatch.setattr(speakers, "CLASSES", ("01", "02"))
    monkeypatch.setattr(speakers, "DIGITS", 2)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NEUROTEST_DATA", raising=False)
    monkeypatch.delenv("NEUROTEST_MATERIAL", raising=False)
    folder = tmp_path / "material" / "data" / speakers.MATERIAL
    random = np.random.default_rng(0)
    for person in ("01", "02"):
        (folder / person).mkdir(parents=True)
        for digit in range(2):
            for take in range(5):
                wav = person == "02" and take == 4
                rate = 48000 if wav else 16000
                x = 0.01 * random.standard_normal(rate // 2)
                soundfile.write(folder / (f"{person}/{digit}_{person}_{take}{'.wav' if wav else '.flac'}"), x, rate)
    return folder


def test_splits_are_takes(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_MATERIAL", str(few.parents[1]))
    train, test = data("zoo:speakers-full/train"), data("zoo:speakers-full/test")
    assert (len(train), len(test)) == (16, 4)
    assert (train.shape, train.dtype, train.rate) == ((1, 16000), np.int16, 16000)
    assert train.labels is not None
    assert test.labels is not None
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert np.bincount(train.labels).tolist() == [8, 8]
    x = np.concatenate([train.read(np.arange(16)), test.read(np.arange(4))])
    assert (np.abs(x.astype(int)).max(axis=(1, 2)) == 16384).all()  # every take is as loud as the others
    assert (x[:, :, 8001:] == 0).all()
    assert x[:, :, 7900:7990].any(axis=(1, 2)).all()
    assert not set(train.ids()) & set(test.ids())


def test_get_keeps_the_same_sounds(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fetch.get(speakers.NAME, source_dir=few)
    kept = data("zoo:speakers-full/test")
    monkeypatch.setenv("NEUROTEST_MATERIAL", str(few.parents[1]))
    for split in ("train", "test"):
        (place / f"{split}.npz").rename(place / f"{split}.aside")
    assert (data("zoo:speakers-full/test").ids() == kept.ids()).all()


def test_what_is_missing_is_said(few: Path) -> None:
    assert not speakers.present()
    with pytest.raises(BadInput, match="neurotest data get speakers --from DIR"):
        data("zoo:speakers-full/test")
    with pytest.raises(BadInput, match="name its folder"):
        fetch.get(speakers.NAME)
    with pytest.raises(BadInput, match="no such folder"):
        fetch.get(speakers.NAME, source_dir=few / "nothing")
    (few / "02" / "1_02_4.wav").unlink()
    with pytest.raises(BadInput, match=r"1_02_4\.flac of AudioMNIST is missing"):
        fetch.get(speakers.NAME, source_dir=few)
    (few / "02" / "1_02_4.wav").write_bytes(b"RIFF no sound")
    with pytest.raises(BadInput, match=r"1_02_4\.wav cannot be read"):
        fetch.get(speakers.NAME, source_dir=few)
