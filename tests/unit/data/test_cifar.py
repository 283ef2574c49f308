"""CIFAR-10 from its archive, its binary files and npz copies, on a small set that takes its place."""

from __future__ import annotations

import functools
import http.server
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import files
from neurotest.data import cifar, data, fetch
from neurotest.zoo import embedded

COUNT = 3  # images per binary file
RANDOM = np.random.default_rng(0)
X = {split: RANDOM.integers(0, 256, (COUNT * len(names), 3, 32, 32)).astype(np.uint8) for split, names in cifar.BATCHES.items()}
Y = {split: (np.arange(len(x)) % 10).astype(np.uint8) for split, x in X.items()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEUROTEST_DATA", str(tmp_path / "here"))
    monkeypatch.setattr(cifar, "PER_FILE", COUNT)
    monkeypatch.setattr(cifar, "SHA256", {split: embedded.digest(X[split], Y[split]) for split in X})
    return tmp_path / "here" / "cifar10"


def binaries() -> dict[str, bytes]:
    """The six files, record by record, as the format's description has it: a label, then three planes."""
    contents = {}
    for split, names in cifar.BATCHES.items():
        for number, name in enumerate(names):
            part = range(number * COUNT, (number + 1) * COUNT)
            contents[name] = b"".join(bytes([Y[split][i]]) + X[split][i].tobytes() for i in part)
    return contents


def archive(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / cifar.ARCHIVE, "w:gz") as out:
        for name, content in {"readme.html": b"about", **members}.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return folder


def check_whole() -> None:
    for split in X:
        source = data(f"zoo:cifar10-full/{split}")
        assert np.array_equal(source.read(np.arange(len(source))), X[split])
        assert source.labels is not None
        assert source.labels.tolist() == Y[split].tolist()
        assert source.classes is not None
        assert source.classes[6] == "frog"


@pytest.fixture
def address(tmp_path: Path, here: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    folder = archive(tmp_path / "published", binaries())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_download(here: Path, address: str) -> None:
    steps: list[tuple[int, int]] = []
    assert fetch.get("cifar10", base_url=address, progress=lambda done, total: steps.append((done, total))) == here
    assert steps[-1] == (2, 2)
    assert sorted(file.name for file in here.iterdir()) == ["test.npz", "train.npz"]
    check_whole()


def test_what_is_there_is_left_alone(here: Path, tmp_path: Path) -> None:
    folder = archive(tmp_path / "copy", binaries())
    fetch.get("cifar10", source_dir=folder)
    before = (here / "train.npz").stat().st_mtime_ns
    (here / "test.npz").write_bytes(b"damaged")
    fetch.get("cifar10", source_dir=folder)
    assert (here / "train.npz").stat().st_mtime_ns == before
    check_whole()
    fetch.get("cifar10", base_url="http://127.0.0.1:9/")  # complete: nobody is asked


def test_from_binary_files_and_from_npz(here: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, content in binaries().items():
        (folder / name).write_bytes(content)
    fetch.get("cifar10", source_dir=tmp_path / "copy")
    check_whole()
    npz = tmp_path / "npz"
    npz.mkdir()
    for split in X:
        np.savez_compressed(npz / f"{split}.npz", x=X[split].transpose(0, 2, 3, 1), y=Y[split].astype(np.int64))
        (here / f"{split}.npz").unlink()
    fetch.get("cifar10", source_dir=npz)
    check_whole()


def test_other_content_is_refused_and_nothing_is_kept(here: Path, tmp_path: Path) -> None:
    other = binaries()
    other["data_batch_1.bin"] = b"\x09" + other["data_batch_1.bin"][1:]
    with refused("download-failed"):
        fetch.get("cifar10", source_dir=archive(tmp_path / "other", other))
    assert not (here / "train.npz").exists()


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (lambda m: m.pop("test_batch.bin"), ("download-failed", "")),
        (lambda m: m.update({"data_batch_2.bin": b"short"}), ("download-failed", "")),
        (lambda m: m.update({"a.bin": bytes(3073 * COUNT * 20)}), ("download-failed", "")),
    ],
)
def test_bad_archives(here: Path, tmp_path: Path, spoil: object, refusal: tuple[str, str]) -> None:
    members = binaries()
    spoil(members)  # type: ignore[operator]
    members = dict(reversed(members.items()))
    with refused(*refusal):
        fetch.get("cifar10", source_dir=archive(tmp_path / "bad", members))


def test_cut_off(here: Path, tmp_path: Path) -> None:
    folder = archive(tmp_path / "cut", binaries())
    content = (folder / cifar.ARCHIVE).read_bytes()
    (folder / cifar.ARCHIVE).write_bytes(content[: len(content) // 2])
    with refused("download-failed"):
        fetch.get("cifar10", source_dir=folder)


def test_the_pickled_version_is_not_read(here: Path, tmp_path: Path) -> None:
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": X["train"]}))
    with refused("not-found", "files"):
        fetch.get("cifar10", source_dir=folder)
    with refused("not-found", "from"):
        fetch.get("cifar10", source_dir=tmp_path / "nowhere")


def test_missing_and_wrong_files(here: Path) -> None:
    with refused("not-found", "data"):
        data("zoo:cifar10-full/test")
    here.mkdir(parents=True)
    np.savez(here / "test.npz", x=np.zeros((2, 28, 28, 1), np.uint8), y=np.zeros(2, np.uint8))
    with refused("damaged"):
        data("zoo:cifar10-full/test")


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_real_one_is_the_pinned_one(split: str) -> None:
    if not (files.data_dir() / "cifar10" / f"{split}.npz").is_file():
        pytest.skip("the complete CIFAR-10 is not here: neurotest data get cifar10")
    source = data(f"zoo:cifar10-full/{split}")
    assert embedded.digest(source.read(np.arange(len(source))), source.labels) == cifar.SHA256[split]
