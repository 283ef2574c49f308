"""Fetching complete sets, from a server on this machine and from folders."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neurotest.data import data, fetch
from neurotest.errors import BadInput

X = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8)
Y = np.array([0, 1, 2, 3], np.uint8)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # whoever stops reading a file that is too long hangs up on us


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where fetched sets go in this test."""
    monkeypatch.setenv("NEUROTEST_DATA", str(tmp_path / "here"))
    return tmp_path / "here" / "mnist"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Callable[[Path, np.ndarray], None]) -> Path:
    """A folder with a small set of its own, which takes the place of MNIST."""
    pinned = {}
    for prefix, part in (("train", slice(0, 3)), ("t10k", slice(3, 4))):
        for ending, array in (("-images-idx3-ubyte", X[part]), ("-labels-idx1-ubyte", Y[part])):
            file = tmp_path / "published" / f"{prefix}{ending}.gz"
            write_idx(file, array)
            content = gzip.decompress(file.read_bytes())
            pinned[file.stem] = (len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(
        fetch.COMPLETE, "mnist", fetch.PublishedSet("http://127.0.0.1:9/", pinned, fetch.COMPLETE["mnist"].splits)
    )
    return tmp_path / "published"


@pytest.fixture
def address(published: Path) -> Iterator[str]:
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(published)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def left_over(place: Path) -> list[str]:
    return sorted(file.name for file in place.glob("*")) if place.exists() else []


def test_download(here: Path, address: str) -> None:
    steps: list[tuple[int, int]] = []
    assert fetch.get("mnist", base_url=address, progress=lambda done, total: steps.append((done, total))) == here
    assert steps[-1][0] == steps[-1][1] == sum(size for size, _ in fetch.COMPLETE["mnist"].files.values())
    assert steps == sorted(steps)
    train, test = data("zoo:mnist-full/train"), data("zoo:mnist-full/test")
    assert (train.read([0, 1, 2])[:, 0] == X[:3]).all()
    assert (test.read([0])[:, 0] == X[3:]).all()
    assert test.labels is not None
    assert test.labels.tolist() == [3]
    assert train.classes is not None
    assert len(train.classes) == 10
    assert left_over(here) == sorted(f"{name}.gz" for name in fetch.COMPLETE["mnist"].files)


def test_what_is_there_is_not_fetched_again(here: Path, published: Path, address: str) -> None:
    fetch.get("mnist", base_url=address)
    before = {file.name: file.stat().st_mtime_ns for file in here.iterdir()}
    for file in published.iterdir():
        file.unlink()
    steps: list[int] = []
    fetch.get("mnist", base_url=address, progress=lambda done, total: steps.append(done))
    assert {file.name: file.stat().st_mtime_ns for file in here.iterdir()} == before
    assert steps


def test_a_damaged_file_is_replaced(here: Path, address: str) -> None:
    fetch.get("mnist", base_url=address)
    (here / "train-images-idx3-ubyte.gz").write_bytes(b"damaged")
    (here / "t10k-images-idx3-ubyte").write_bytes(b"damaged too, and plain: the reader would take it first")
    fetch.get("mnist", base_url=address)
    assert len(data("zoo:mnist-full/train")) == 3
    assert len(data("zoo:mnist-full/test")) == 1


SPOILED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "other content": (lambda content: gzip.compress(content[:-1] + b"\xff"), "has SHA-256 .*, expected .*nothing was kept"),
    "cut off": (lambda content: gzip.compress(content)[:-20], "damaged or cut off"),
    "short": (lambda content: gzip.compress(content[:-1]), "ends after"),
    "bomb": (lambda content: gzip.compress(content + b"\0" * 50_000_000), "unpacks to more than the"),
    "long": (lambda content: gzip.compress(content) + b"\0" * 2_000_000, "is longer than it should be"),
    "no gzip": (lambda content: content, "damaged or cut off"),
    "garbage behind": (lambda content: gzip.compress(content) + b"garbage", "damaged or cut off"),
    "changed inside": (
        lambda content: gzip.compress(content)[:30] + b"\xff\xff" + gzip.compress(content)[32:],
        "damaged|SHA-256|ends",
    ),
    "empty": (lambda content: b"", "ends after 0"),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("local", [False, True])
def test_spoiled_files_are_refused_and_leave_nothing(here: Path, published: Path, address: str, how: str, local: bool) -> None:
    spoil, message = SPOILED[how]
    file = published / "train-images-idx3-ubyte.gz"
    file.write_bytes(spoil(gzip.decompress(file.read_bytes())))
    with pytest.raises(BadInput, match=f"train-images-idx3-ubyte.gz .*({message})"):
        fetch.get("mnist", source_dir=published if local else None, base_url=address)
    assert left_over(here) == []


def test_one_spoiled_file_does_not_cost_the_others(here: Path, published: Path, address: str) -> None:
    spoiled = published / "t10k-labels-idx1-ubyte.gz"
    good = spoiled.read_bytes()
    spoiled.write_bytes(b"x")
    with pytest.raises(BadInput):
        fetch.get("mnist", base_url=address)
    assert len(left_over(here)) == 3
    spoiled.write_bytes(good)
    fetch.get("mnist", base_url=address)
    assert len(left_over(here)) == 4


def test_missing_on_the_server(here: Path, published: Path, address: str) -> None:
    (published / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(BadInput, match=r"train-labels-idx1-ubyte.gz answers 404 .*--from DIR"):
        fetch.get("mnist", base_url=address)


def test_no_server(here: Path, published: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be reached .*--from DIR"):
        fetch.get("mnist")  # the address of the fixture is one where nobody listens


def test_only_http(here: Path, published: Path) -> None:
    with pytest.raises(BadInput, match="expected http://"):
        fetch.get("mnist", base_url=published.as_uri())


@pytest.mark.parametrize("inside", ["", "mnist"])
@pytest.mark.parametrize("plain", [True, False])
def test_from_a_folder(here: Path, published: Path, tmp_path: Path, inside: str, plain: bool) -> None:
    folder = tmp_path / "copies" / inside
    folder.mkdir(parents=True)
    for file in published.iterdir():
        content = gzip.decompress(file.read_bytes())
        if plain:
            (folder / file.stem).write_bytes(content)
        else:  # packed differently than what was published: the content counts
            (folder / file.name).write_bytes(gzip.compress(content[:100], 1) + gzip.compress(content[100:], 9))
    assert fetch.get("mnist", source_dir=tmp_path / "copies") == here
    assert (data("zoo:mnist-full/train").read([0, 1, 2])[:, 0] == X[:3]).all()


def test_from_a_folder_that_lacks_them(here: Path, published: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--from .*gone: there is no such folder"):
        fetch.get("mnist", source_dir=tmp_path / "gone")
    (published / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(BadInput, match=r"train-labels-idx1-ubyte\[.gz\] of mnist is neither there nor in"):
        fetch.get("mnist", source_dir=published)


def test_unknown_sets_and_sets_that_are_not_here(here: Path) -> None:
    with pytest.raises(BadInput, match=r"'minst'.*Did you mean mnist"):
        fetch.get("minst")
    with pytest.raises(BadInput, match=r"is not in .*run `neurotest data get mnist`"):
        data("zoo:mnist-full/train")


def test_a_place_that_cannot_be_written(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("NEUROTEST_DATA", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="cannot write"):
        fetch.get("mnist", source_dir=published)
