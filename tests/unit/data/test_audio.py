"""wav: class folders and flat ones, every number format, and every kind of file that cannot be used."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from neurotest.audio import wav
from neurotest.data import Source, audio, data
from neurotest.errors import BadInput
from neurotest.images import Preprocess

soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed: pip install 'neurotest[audio]'")


def tone(pitch: float = 440, rate: int = 8000, seconds: float = 0.5, height: float = 0.5) -> np.ndarray:
    return height * np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)


def save(path: Path, samples: np.ndarray, rate: int = 8000, subtype: str = "PCM_16") -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype=subtype)
    return samples


def everything(source: Source) -> np.ndarray:
    return source.read(np.arange(len(source)))


def warnings(source: Source) -> str:
    return " ".join(source.notes.get("warnings", ()))


def test_class_folders(tmp_path: Path) -> None:
    for name, pitch in (("low", 200), ("high", 900)):
        save(tmp_path / name / "a.wav", tone(pitch))
    source = data(f"wav:{tmp_path}")
    assert source.classes == ("high", "low")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1]
    assert (source.shape, source.dtype, source.rate) == ((1, 4000), np.int16, 8000)
    assert source.notes == {}
    assert source.names is not None
    assert source.names.tolist() == ["high/a.wav", "low/a.wav"]


def test_sixteen_bits_come_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-30000, 30000, (3, 1, 500)).astype(np.int16)
    for i, one in enumerate(x):
        (tmp_path / f"{i}.wav").write_bytes(wav(one, 8000))
    soundfile.write(tmp_path / "3.flac", x[0, 0], 8000, subtype="PCM_16")
    source = data(f"wav:{tmp_path}")
    assert (everything(source) == np.concatenate([x, x[:1]])).all()
    assert source.ids()[0] == source.ids()[3]
    assert data(f"wav:{tmp_path}", shape=(500,)).shape == (500,)
    assert data(f"wav:{tmp_path}[1:2]").read([0]).tolist() == x[1:2].tolist()


def test_labels_out_of_a_table(tmp_path: Path) -> None:
    for name in "ab":
        save(tmp_path / f"{name}.wav", tone())
    (tmp_path / "labels.csv").write_text("file,label\na.wav,dog\nb.wav,cat\n")
    source = data(f"wav:{tmp_path}#labels.csv")
    assert source.classes == ("cat", "dog")
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("subtype", "words"), [("PCM_24", "PCM 24"), ("PCM_32", "PCM 32"), ("FLOAT", "FLOAT"), ("DOUBLE", "DOUBLE"), ("PCM_U8", "")]
)
def test_other_number_formats_are_rounded_and_said(tmp_path: Path, subtype: str, words: str) -> None:
    x = save(tmp_path / "a.wav", tone(), subtype=subtype)
    source = data(f"wav:{tmp_path}")
    assert_allclose(everything(source)[0, 0] / 32768, x, atol=1 / 120 if subtype == "PCM_U8" else 1 / 32768)
    assert (f"1 file has {words} samples, rounded to 16 bits" in warnings(source)) == bool(words)


def test_float_samples_beyond_full_scale_are_clipped_and_said(tmp_path: Path) -> None:
    save(tmp_path / "a.wav", tone(height=2.0), subtype="FLOAT")
    source = data(f"wav:{tmp_path}")
    assert everything(source).max() == 32767
    assert "beyond full scale" in warnings(source)
    assert "recorded, or stored, too loud" in warnings(source)


def test_clipped_sounds_are_used_and_said(tmp_path: Path) -> None:
    save(tmp_path / "a.wav", tone(height=3.0).clip(-1, 1))
    assert "1 file has clipped samples" in warnings(data(f"wav:{tmp_path}"))


def test_stereo_is_mixed_and_said(tmp_path: Path) -> None:
    save(tmp_path / "a.wav", np.stack([tone(height=0.5), tone(height=0.1)], axis=1))
    source = data(f"wav:{tmp_path}")
    assert_allclose(everything(source)[0, 0] / 32768, tone(height=0.3), atol=2 / 32768)
    assert "2 channels, of which the mean is used" in warnings(source)


def test_other_rates_are_resampled_and_said(tmp_path: Path) -> None:
    save(tmp_path / "a.wav", tone(rate=16000), 16000)
    save(tmp_path / "b.wav", tone())
    source = data(f"wav:{tmp_path}", preprocess=Preprocess(rate=8000))
    assert source.shape == (1, 4000)
    assert "1 file has 16000 samples a second, resampled to 8000 (first: a.wav)" in warnings(source)
    inner = everything(source)[:, 0, 200:-200] / 32768  # a filter needs some room at the ends
    assert_allclose(inner[0], inner[1], atol=5e-3)


def test_files_of_several_rates_need_a_rate(tmp_path: Path) -> None:
    save(tmp_path / "a.wav", tone(rate=16000), 16000)
    save(tmp_path / "b.wav", tone())
    with pytest.raises(BadInput, match=r"several rates \(1 at 16000, 1 at 8000.*--rate 16000"):
        data(f"wav:{tmp_path}")


def test_lengths(tmp_path: Path) -> None:
    save(tmp_path / "long.wav", tone(seconds=1))
    save(tmp_path / "short.wav", tone(seconds=0.25))
    save(tmp_path / "whole.wav", tone())
    source = data(f"wav:{tmp_path}", shape=(1, 4000))
    assert len(source) == 2
    assert "1 of 3 files are longer than 0.5 s (first: long.wav) and are left out: --crop centre" in warnings(source)
    assert "1 of 3 files are shorter than 0.5 s and end in silence (first: short.wav)" in warnings(source)
    assert not everything(source)[0, 0, 2000:].any()
    middle = data(f"wav:{tmp_path}", shape=(1, 4000), preprocess=Preprocess(crop="centre"))
    assert_allclose(everything(middle)[0, 0] / 32768, tone(seconds=1)[2000:6000], atol=1 / 32768)


def test_half_an_hour_is_refused_by_its_header_with_a_way_out(tmp_path: Path) -> None:
    head = wav(np.ones((1, 1), np.int16), 8000)
    size = 1800 * 8000 * 2
    with (tmp_path / "talk.wav").open("wb") as file:
        file.write(head[:4] + struct.pack("<I", 36 + size) + head[8:40] + struct.pack("<I", size))
        file.truncate(44 + size)  # a hole: nothing of it is on the disk
    with pytest.raises(BadInput, match=r"1,800 seconds at 8000.*Cut it into parts.*ffmpeg"):
        data(f"wav:{tmp_path}")


def test_what_cannot_be_used_is_left_out_and_named(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.wav", tone())
    save(tmp_path / "silent.wav", 0 * whole)
    save(tmp_path / "nan.wav", np.where(np.arange(len(whole)) == 7, np.nan, whole), subtype="FLOAT")
    save(tmp_path / "x.flac", whole)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "a.wav").read_bytes()[:3000])
    (tmp_path / "cut.flac").write_bytes((tmp_path / "x.flac").read_bytes()[:-500])
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.ogg").write_text("no sound")
    (tmp_path / "song.mp3").write_bytes(b"ID3")
    source = data(f"wav:{tmp_path}")
    reasons = {one.file: one.reason for one in source.skipped}
    assert set(reasons) == {"silent.wav", "nan.wav", "cut.wav", "cut.flac", "empty.wav", "text.ogg", "song.mp3"}
    assert reasons["silent.wav"] == "silent: every sample is 0"
    assert reasons["nan.wav"] == "holds NaN or infinity"
    assert "8000 bytes of samples promised, 2956 are there" in reasons["cut.wav"]
    assert "damaged or cut off" in reasons["cut.flac"]
    assert "no readable audio" in reasons["empty.wav"]
    assert reasons["song.mp3"] == "not WAV, FLAC or Ogg"
    with pytest.raises(BadInput, match="repair or remove it"):
        data(f"wav:{tmp_path}", strict=True)


@pytest.mark.parametrize(
    ("shape", "preprocess", "words"),
    [
        ((1, 28, 28), None, "spectrogram computed inside the network"),
        ((2, 4000), None, r"audio \(1, samples\)"),
        (None, Preprocess(resize=3), "--resize is for images"),
        (None, Preprocess(grey=True), "--grey is for images"),
    ],
)
def test_what_does_not_fit_sound(tmp_path: Path, shape, preprocess, words: str) -> None:
    save(tmp_path / "a.wav", tone())
    with pytest.raises(BadInput, match=words):
        data(f"wav:{tmp_path}", shape=shape, preprocess=preprocess)


def test_folders_without_sound(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no audio files"):
        data(f"wav:{tmp_path}")
    with pytest.raises(BadInput, match="does not exist"):
        data(f"wav:{tmp_path}/nowhere")
    with pytest.raises(BadInput, match="rate=3: expected samples a second"):
        Preprocess(rate=3)


def test_without_soundfile_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(BadInput, match=r"pip install 'neurotest\[audio\]'"):
        data(f"wav:{tmp_path}")


def test_samples_in_arrays(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-99, 99, (4, 1, 50)).astype(np.int16)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(4))
    with pytest.raises(BadInput, match="--rate 16000"):
        data(f"npz:{tmp_path}/x.npz")
    source = data(f"npz:{tmp_path}/x.npz", preprocess=Preprocess(rate=8000))
    assert (source.shape, source.rate, source.dtype) == ((1, 50), 8000, np.int16)
    assert (everything(source) == x).all()
    assert (everything(data((x, np.arange(4)), preprocess=Preprocess(rate=8000))) == x).all()
    with pytest.raises(BadInput, match="has 8000 samples a second, the target takes 16000"):
        data(source, preprocess=Preprocess(rate=16000))
    with pytest.raises(BadInput, match="inputs of type int16"):
        data(x.reshape(4, 2, 25))


def test_resampling_keeps_a_tone_and_drops_what_cannot_be_held() -> None:
    kept, dropped = audio.resampled(tone(500, 16000), 16000, 8000), audio.resampled(tone(6000, 16000), 16000, 8000)
    assert_allclose(kept[200:-200], tone(500, 8000)[200:-200], atol=5e-3)
    assert float(np.abs(dropped[200:-200]).max()) < 5e-3
