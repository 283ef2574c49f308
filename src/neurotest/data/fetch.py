"""Complete data sets from their own addresses (or a folder), checked against the SHA-256 of their content.

The pinned hashes are of the unpacked files, so a copy that was packed again verifies too.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from neurotest import files
from neurotest.data import cifar, driving, idx, speakers
from neurotest.data.source import Source, Wanted
from neurotest.errors import BadInput, near
from neurotest.zoo import embedded

CHUNK = 1 << 20
TIMEOUT = 60  # seconds without a byte
Progress = Callable[[int, int], None]  # bytes checked, bytes in all


@dataclass(frozen=True)
class PublishedSet:
    """A published set: where it lies, its unpacked files (bytes, SHA-256), and the file prefix of each split."""

    address: str
    files: dict[str, tuple[int, str]]
    splits: dict[str, str]


COMPLETE: dict[str, PublishedSet] = {
    "mnist": PublishedSet(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            "train-labels-idx1-ubyte": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
            "t10k-images-idx3-ubyte": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            "t10k-labels-idx1-ubyte": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        },
        {"train": "train", "test": "t10k"},
    ),
    "fashion-mnist": PublishedSet(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte": (47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
            "train-labels-idx1-ubyte": (60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
            "t10k-images-idx3-ubyte": (7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
            "t10k-labels-idx1-ubyte": (10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        },
        {"train": "train", "test": "t10k"},
    ),
}
NAMES = (*COMPLETE, cifar.NAME, speakers.NAME)
BROUGHT = (driving.NAME,)  # there is no address for these: people bring them
FULL = "-full"
SETS = (*BROUGHT, *(name + FULL for name in NAMES))  # as `zoo:` names them


class _Wrong(Exception):
    """Why a file is not the pinned one."""


def read(name: str, split: str, wanted: Wanted, *, spec: str) -> Source:
    """A split of one of `SETS`, from the user's data folder."""
    plain = name.removesuffix(FULL)
    readers = {cifar.NAME: cifar.read, driving.NAME: driving.read, speakers.NAME: speakers.read}
    if plain in readers:
        return readers[plain](split, wanted, spec=spec)
    prefix = files.data_dir() / plain / COMPLETE[plain].splits[split]
    if idx.find_file(prefix, idx.IMAGES) is None or idx.find_file(prefix, idx.LABELS) is None:
        message = f"{spec}: the complete set is not in {prefix.parent}: run `neurotest data get {plain}` (or --from DIR)."
        raise BadInput("not-found", "data", message)
    return idx.read_pair(prefix, wanted, spec=spec, classes=embedded.family(plain).classes)


def get(
    name: str, *, source_dir: Path | str | None = None, base_url: str | None = None, progress: Progress | None = None
) -> Path:
    """Bring the set to `files.data_dir()/name` and return that folder; files that are there and right are left alone."""
    folder = None if source_dir is None else Path(source_dir).expanduser()
    if name == cifar.NAME:
        address = (base_url or cifar.ADDRESS).rstrip("/") + f"/{cifar.ARCHIVE}"
        return cifar.get(folder, lambda: _download(address, name), progress)
    if name == driving.NAME:
        return driving.get(folder)
    if name == speakers.NAME:
        return speakers.get(folder, progress)
    if name not in COMPLETE:
        raise BadInput("unknown-name", "name", f"no data set {name!r} can be fetched. {near(name, (*NAMES, *BROUGHT))}")
    wanted = COMPLETE[name]
    place = files.data_dir() / name
    total, before = sum(size for size, _ in wanted.files.values()), 0
    for file, (size, sha256) in wanted.files.items():
        done = before

        def advance(checked: int, done: int = done) -> None:
            if progress is not None:
                progress(done + checked, total)

        if not _present(place / file, size, sha256, advance):
            with _opened(name, file, folder, base_url or wanted.address) as (stream, origin, packed):
                _bring(stream, origin, place / (f"{file}.gz" if packed else file), (size, sha256), advance)
        before += size
    return place


def _present(file: Path, size: int, sha256: str, advance: Callable[[int], None]) -> bool:
    for place in (file, file.with_name(f"{file.name}.gz")):
        if place.is_file():
            try:
                with open(place, "rb") as stream:
                    _copy_checked(stream, None, place.suffix == ".gz", size, sha256, advance)
                return True
            except (OSError, _Wrong):
                place.unlink(missing_ok=True)  # damaged: the reader would prefer it to the one that is fetched now
    return False


@contextmanager
def _opened(name: str, file: str, folder: Path | None, address: str) -> Iterator[tuple[BinaryIO, str, bool]]:
    """The file as a stream, where it comes from, and whether it is gzipped."""
    if folder is None:
        with _download(address.rstrip("/") + f"/{file}.gz", name) as stream:
            yield stream, address.rstrip("/") + f"/{file}.gz", True
        return
    if not folder.is_dir():
        raise BadInput("not-found", "from", f"--from {folder}: there is no such folder; name the one that holds {file}[.gz].")
    places = [inside / (file + ending) for inside in (folder, folder / name) for ending in ("", ".gz")]
    local = next((place for place in places if place.is_file()), None)
    if local is None:
        raise BadInput("not-found", "files", f"--from {folder}: {file}[.gz] of {name} is neither there nor in {folder / name}.")
    with open(local, "rb") as stream:
        yield stream, str(local), local.suffix == ".gz"


@contextmanager
def _download(address: str, name: str) -> Iterator[BinaryIO]:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    if not address.startswith(("http://", "https://")):
        message = f"address {address!r}: expected http:// or https://; for files on this machine use --from DIR."
        raise BadInput("syntax", "address", message)
    instead = f"Try again later, or bring the files yourself: neurotest data get {name} --from DIR"
    try:
        answer = urlopen(address, timeout=TIMEOUT)
    except HTTPError as error:
        raise BadInput("download-failed", "status", f"{address} answers {error.code} {error.reason}. {instead}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        message = f"{address} cannot be reached ({getattr(error, 'reason', error)}). {instead}"
        raise BadInput("download-failed", "", message) from error
    with answer:
        yield cast(BinaryIO, answer)


def _bring(stream: BinaryIO, origin: str, place: Path, wanted: tuple[int, str], advance: Callable[[int], None]) -> None:
    with files.atomic_write(place) as part, open(part, "wb") as out:
        try:
            _copy_checked(stream, out, place.suffix == ".gz", *wanted, advance)
        except _Wrong as error:
            message = f"{origin} {error}; nothing was kept of it. Try again, or another copy with --from DIR."
            raise BadInput("download-failed", "content", message) from error


class _Tee:
    """Reads a stream, keeps a copy of every byte, and stops when it is longer than it can rightly be."""

    def __init__(self, stream: BinaryIO, out: IO[bytes] | None, most: int) -> None:
        self.stream, self.out, self.left = stream, out, most

    def read(self, size: int = -1) -> bytes:
        try:
            chunk = self.stream.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise _Wrong(f"breaks off ({error})") from error
        self.left -= len(chunk)
        if self.left < 0:
            raise _Wrong("is longer than it should be")
        if self.out is not None:
            self.out.write(chunk)
        return chunk


def _copy_checked(
    stream: BinaryIO, out: IO[bytes] | None, packed: bool, size: int, sha256: str, advance: Callable[[int], None]
) -> None:
    """Copy the stream as it is while hashing what it unpacks to, never more than it should unpack to."""
    tee = _Tee(stream, out, size + CHUNK)  # even noise grows by less than this when it is packed
    content: Any = gzip.GzipFile(fileobj=cast(BinaryIO, tee)) if packed else tee
    digest, checked = hashlib.sha256(), 0
    try:
        while chunk := content.read(CHUNK):
            checked += len(chunk)
            if checked > size:
                raise _Wrong(f"unpacks to more than the {size} bytes it should have")
            digest.update(chunk)
            advance(checked)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _Wrong(f"is damaged or cut off ({error})") from error
    if checked < size:
        raise _Wrong(f"ends after {checked} of {size} bytes")
    if digest.hexdigest() != sha256:
        raise _Wrong(f"has SHA-256 {digest.hexdigest()}, expected {sha256}: damaged, or not this data set")
