"""Sound in a folder: `wav:FOLDER`, with one sub-folder per class or unlabelled, and `wav:FOLDER#LABELS.csv`."""

from __future__ import annotations

import io
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.audio import RATES, SUFFIXES
from neurotest.data.listing import File, Kind, decode_all, find, refuse
from neurotest.data.source import Array, Skipped, Source, Wanted, shape_text
from neurotest.errors import BadInput
from neurotest.images import Unusable
from neurotest.reading import reason

KIND = Kind(
    prefix="wav", things="audio files", formats="WAV, FLAC and Ogg", suffixes=SUFFIXES,
    others=(".mp3", ".m4a", ".aac", ".opus", ".aif", ".aiff", ".wma", ".au"),
)  # fmt: skip
LONGEST_CLIP = 60  # seconds of one input
MAX_FILE = 64 << 20
CHANNELS = 16
LARGE_CLIP = 4_000_000  # samples
CLIPPED = 0.001  # share of samples at full scale above which a clip counts as clipped
EXACT = ("PCM_16", "PCM_U8", "PCM_S8")  # sixteen bits hold these as they are


Held = bytes | tuple[NDArray[Any], int]  # what a file holds, or (frames, channels) with full scale at 1 and how many a second


@dataclass(frozen=True)
class AudioFile(File):
    """An audio clip on disk, or one that a program holds, and what its header says."""

    frames: int = 0
    rate: int = 0
    channels: int = 1
    subtype: str = ""
    held: Callable[[], Held] | None = None  # gives the clip, where there is none on disk

    def length(self, rate: int) -> int:
        """Samples at another rate."""
        return -(-self.frames * rate // self.rate)


@registry.register(
    "data source", "wav", paper="", cost="every clip is decoded once to check it; up to 1 GiB of samples stay in memory"
)
def _open_folder(rest: str, wanted: Wanted) -> Source:
    """WAV, FLAC and Ogg files: `wav:FOLDER`, one sub-folder per class in the order of their names, or flat and unlabelled;
    `wav:FOLDER#LABELS.csv` with labels from a table of file names. One channel, 16 bits, at the rate the target takes."""
    _soundfile()
    skipped: list[Skipped] = []
    files, about = find(KIND, rest, skipped)
    return open_audio([AudioFile(**vars(file)) for file in files], wanted, skipped, about)


def open_audio(listed: Sequence[AudioFile], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]) -> Source:
    """Sounds as inputs of one length and rate; `about` is what the source is called and knows beside them."""
    what = about["spec"] or "the data"
    clips = list(_with_headers(listed, skipped))
    rate = _rate(clips, wanted, what)
    shape = _shape(clips, wanted, rate, what)
    clips = _of_length(clips, shape[-1], rate, wanted, skipped, about["notes"])
    if wanted.strict:
        refuse(skipped)
    source = decode_all(clips, _Decoder(clips, shape, rate), wanted, skipped, about)
    source.rate = rate
    return source


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        message = f"wav: needs soundfile ({reason(error)}): pip install 'neurotest[audio]'."
        raise BadInput("not-installed", "soundfile", message) from None
    return soundfile


def _with_headers(clips: Sequence[AudioFile], skipped: list[Skipped]) -> Iterator[AudioFile]:
    """The files with what their headers say; nothing is decoded, so a file that would not fit into memory does no harm."""
    for clip in clips:
        try:
            clip = _with_header(clip)
        except (RuntimeError, OSError, ValueError) as error:  # soundfile's own are of the first kind
            skipped.append(Skipped(clip.name, f"no readable audio: {_reason(error)}"))
            continue
        if not RATES[0] <= clip.rate <= RATES[1] or not 1 <= clip.channels <= CHANNELS or clip.frames < 1:
            form = f"{clip.frames} samples of {clip.channels} channels at {clip.rate} a second"
            skipped.append(Skipped(clip.name, f"{form}: no audio that is read here"))
        elif clip.frames > LONGEST_CLIP * clip.rate:
            raise _long(clip, f"{clip.frames / clip.rate:,.0f} seconds at {clip.rate} samples a second")
        else:
            yield clip


def _with_header(clip: AudioFile) -> AudioFile:
    held = None if clip.held is None else clip.held()
    if isinstance(held, tuple):
        values, rate = held
        whole = np.array_equal(values * 32768, np.rint(values * 32768))  # decoded from 16 bits
        return replace(clip, frames=len(values), rate=rate, channels=values.shape[1], subtype="PCM_16" if whole else "FLOAT")
    if held is None and clip.path.stat().st_size > MAX_FILE:
        raise _long(clip, f"{clip.path.stat().st_size / 1e6:.0f} MB")
    info = _soundfile().info(str(clip.path) if held is None else io.BytesIO(held))
    return replace(clip, frames=info.frames, rate=info.samplerate, channels=info.channels, subtype=info.subtype)


def _long(clip: AudioFile, size: str) -> BadInput:
    cut = "ffmpeg -i FILE -f segment -segment_time 1 PARTS/%05d.wav"
    return BadInput(
        "too-large",
        "seconds",
        f"{clip.path}: {size}; more than {LONGEST_CLIP} seconds are not read as one input. Cut it into parts as long as the "
        f"network takes, for example with `{cut}`, or remove it.",
    )


def _reason(error: Exception) -> str:
    """The decoder's words without our path."""
    return reason(error).rpartition(": ")[2] or "damaged"


def _rate(clips: Sequence[AudioFile], wanted: Wanted, what: str) -> int:
    """What the target takes; where nobody says, that of the files, if it is one."""
    if wanted.preprocess.rate is not None:
        return wanted.preprocess.rate
    rates = Counter(clip.rate for clip in clips).most_common()
    if len(rates) > 1:
        counted = ", ".join(f"{count} at {rate}" for rate, count in rates[:4])
        message = f"{what}: files of several rates ({counted} samples a second): say what the network takes, --rate 16000."
        raise BadInput("ambiguous", "rate", message)
    return rates[0][0] if rates else RATES[0]


def _shape(clips: Sequence[AudioFile], wanted: Wanted, rate: int, what: str) -> tuple[int, ...]:
    """What the target expects; without one, (1, the most common length)."""
    shape, preprocess = wanted.shape, wanted.preprocess
    if preprocess.resize is not None or preprocess.grey:
        option = "resize" if preprocess.resize is not None else "grey"
        raise BadInput("conflict", option, f"{what}: --{option} is for images; audio has --rate and --crop centre.")
    if shape is None:
        lengths = Counter(clip.length(rate) for clip in clips).most_common(1)
        return (1, lengths[0][0] if lengths else 1)
    if len(shape) > 2 or (len(shape) == 2 and shape[0] != 1):
        message = (
            f"{what} gives audio (1, samples) or (samples,), the target expects {shape_text(shape)}: let it take the waveform, "
            "with the spectrogram computed inside the network."
        )
        raise BadInput("unsuitable", "shape", message)
    return tuple(shape)


def _of_length(
    clips: Sequence[AudioFile], samples: int, rate: int, wanted: Wanted, skipped: list[Skipped], notes: dict[str, Any]
) -> list[AudioFile]:
    """Those that fit. Longer ones are left out and named, unless their middle is wanted."""
    long = [clip for clip in clips if clip.length(rate) > samples]
    short = sum(clip.length(rate) < samples for clip in clips)
    sentences = []
    seconds = f"{samples / rate:.3g} s"
    if long and wanted.preprocess.crop is None:
        skipped += [Skipped(clip.name, f"{clip.frames / clip.rate:.3g} s, longer than {seconds}", named=True) for clip in long]
        counted = f"{len(long)} of {len(clips)} files are longer than {seconds} (first: {long[0].name})"
        sentences.append(f"{counted} and are left out: --crop centre uses their middle.")
    elif long:
        sentences.append(f"of {len(long)} files the middle {seconds} are used (first: {long[0].name}).")
    if short:
        first = next(clip for clip in clips if clip.length(rate) < samples)
        sentences.append(f"{short} of {len(clips)} files are shorter than {seconds} and end in silence (first: {first.name}).")
    if sentences:
        notes["warnings"] = [*notes.get("warnings", ()), *sentences]
    return list(clips) if wanted.preprocess.crop else [clip for clip in clips if clip.length(rate) <= samples]


class _Decoder:
    """Sounds of one length and rate; what an object of the user hands out is asked for one by one."""

    dtype, things = np.dtype(np.int16), "audio files"

    def __init__(self, clips: Sequence[AudioFile], shape: tuple[int, ...], rate: int) -> None:
        self.shape, self._rate = shape, rate
        large = any(clip.frames > LARGE_CLIP for clip in clips)  # threads would need its memory several times
        self.threads = 1 if large or any(clip.held is not None for clip in clips) else None

    def decode(self, clip: AudioFile) -> tuple[Array, tuple[str, ...]]:
        samples, changes = _samples(clip)
        if clip.rate != self._rate:
            samples = resampled(samples, clip.rate, self._rate)
            changes.append(f"{clip.rate} samples a second, resampled to {self._rate}")
        if (largest := float(np.abs(samples).max(initial=0.0))) == 0.0:
            raise Unusable("silent: every sample is 0")
        if largest > 1 and clip.rate == self._rate:
            changes.append("samples beyond full scale, which were clipped")
        stored = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
        if float((np.abs(stored.astype(np.int32)) >= 32767).mean()) > CLIPPED:
            changes.append("clipped samples: it was recorded, or stored, too loud")
        wanted = self.shape[-1]
        start = max(0, (len(stored) - wanted) // 2)
        out = np.zeros(wanted, np.int16)
        part = stored[start : start + wanted]
        out[: len(part)] = part
        if not out.any():
            raise Unusable("silent in its middle: every sample is 0")
        return out.reshape(self.shape), tuple(changes)


def _samples(clip: AudioFile) -> tuple[NDArray[np.float64], list[str]]:
    """Of one channel, full scale at 1, and what had to be changed."""
    try:
        held = clip.path.read_bytes() if clip.held is None else clip.held()
        if isinstance(held, bytes):
            _check_whole(held)
            return _decoded(held, clip), _changes(clip)
        values, rate = held
    except (RuntimeError, OSError, ValueError) as error:
        raise Unusable(f"damaged or cut off: {_reason(error)}") from error
    if rate != clip.rate or len(values) != clip.frames:
        raise Unusable(f"damaged or cut off: {clip.frames} samples promised, {len(values)} are there")
    return _mono(values), _changes(clip)


def _decoded(content: bytes, clip: AudioFile) -> NDArray[np.float64]:
    """Of one channel, a second at a time: all channels of a long clip take much memory."""
    samples, at = np.zeros(clip.frames), 0
    with _soundfile().SoundFile(io.BytesIO(content)) as file:
        if file.samplerate != clip.rate:
            raise ValueError(f"{file.samplerate} samples a second, {clip.rate} promised")
        for block in file.blocks(clip.rate, dtype="float64", always_2d=True):  # (frames, channels)
            samples[at : at + len(block)] = _mono(block)[: clip.frames - at]
            at += len(block)
    if at != clip.frames:
        raise ValueError(f"{clip.frames} samples promised, {at} are there")
    return samples


def _mono(values: NDArray[Any]) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise Unusable("holds NaN or infinity")
    return np.asarray(values.mean(axis=1), np.float64)


def _changes(clip: AudioFile) -> list[str]:
    changes = []
    if clip.channels > 1:
        changes.append(f"{clip.channels} channels, of which the mean is used")
    if clip.subtype not in EXACT and not clip.subtype.startswith(("VORBIS", "OPUS")):
        changes.append(f"{clip.subtype.replace('_', ' ')} samples, rounded to 16 bits")
    return changes


def _check_whole(content: bytes) -> None:
    """Refuse a WAV file that is shorter than its chunks promise: the decoder would take what is left without a word."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        if name == b"data" and size not in (0, 0xFFFFFFFF, 0x7FFFFFFF) and at + 8 + size > len(content):  # the others: a stream
            raise ValueError(f"{size} bytes of samples promised, {len(content) - at - 8} are there")
        at += 8 + size + size % 2


def resampled(samples: NDArray[np.float64], rate: int, wanted: int) -> NDArray[np.float64]:
    """At another rate, by a filter that lets nothing above half of the smaller one through."""
    from scipy.signal import resample_poly

    common = math.gcd(rate, wanted)
    return np.asarray(resample_poly(samples, wanted // common, rate // common))
