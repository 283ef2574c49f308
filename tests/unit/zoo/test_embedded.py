"""The embedded data: exactly what the cards say, or a sentence where it was deleted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neurotest import files, zoo
from neurotest.data import data
from neurotest.errors import BadInput
from neurotest.zoo import embedded

pytestmark = pytest.mark.plain

SPLITS = [(name, split) for name, splits in embedded.PARTS.items() for split in splits]
CARDS = Path(__file__).parents[3] / "docs" / "data"


def needed(name: str, split: str) -> embedded.Split:
    part = embedded.PARTS[name][split]
    if not all(zoo.packaged(f"data/{file}") for file in part.files):
        pytest.skip(f"the embedded {name} {split} set was deleted from this installation")
    return part


def path(file: str) -> Path:
    found = zoo.packaged(f"data/{file}")
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_content_is_what_was_pinned(name: str, split: str) -> None:
    part = needed(name, split)
    x, y, classes = embedded.load(name, split)
    assert x.shape == (part.count, *embedded.family(name).shape)
    assert x.dtype == np.uint8
    assert y.shape == (part.count,)
    assert y.dtype == np.int64
    assert len(classes) == 10
    assert embedded.digest(x, y) == part.sha256
    assert set(y.tolist()) == set(range(10))


def test_the_first_digits_by_hand() -> None:
    needed("mnist", "test")
    x, y, _ = embedded.load("mnist", "test")
    assert y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert x[0, 0, :7].max() == 0
    assert x[0, 0, 7, 4:14].tolist() == [0, 0, 84, 185, 159, 151, 60, 36, 0, 0]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_it_equals_the_complete_set(name: str, split: str) -> None:
    part = needed(name, split)
    if not (files.data_dir() / name).is_dir():
        pytest.skip(f"the complete {name} is not here: neurotest data get {name}")
    ours, theirs = data(f"zoo:{name}/{split}"), data(f"zoo:{name}-full/{split}", limit=part.count)
    assert ours.ids().tolist() == theirs.ids().tolist()
    assert ours.labels is not None
    assert theirs.labels is not None
    assert ours.labels.tolist() == theirs.labels.tolist()
    assert ours.classes == theirs.classes


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_files_are_small_quick_and_on_their_card(name: str, split: str) -> None:
    part = needed(name, split)
    image, calls, paths = embedded.family(name).shape, 0, [path(file) for file in part.files]

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for file in paths:
            embedded.unpack(file, part.count // len(part.files), image[1:] if image[0] == 1 else image)
    finally:
        sys.setprofile(before)
    assert calls < 300  # calls and returns: nothing is done image by image
    card = (CARDS / f"{name}.md").read_text()
    assert part.sha256 in card
    for file in part.files:
        size = path(file).stat().st_size
        assert size < 2_900_000
        assert f"| `{file}` | {part.count // len(part.files):,} | {size:,} |" in card


def test_every_file_is_in_the_table_and_in_the_notice() -> None:
    listed = {file for splits in embedded.PARTS.values() for part in splits.values() for file in part.files}
    notice = (CARDS.parents[1] / "NOTICE").read_text()
    files = [file.name for folder in zoo.folders() for file in (folder / "data").glob("*")]
    assert sorted(files) == sorted(listed)
    assert all(file in notice for file in listed)


def test_the_arrays_are_shared_and_therefore_read_only() -> None:
    needed("mnist", "train")
    x, y, _ = embedded.load("mnist", "train")
    assert embedded.load("mnist", "train")[0] is x
    assert not x.flags.writeable
    assert not y.flags.writeable
    source = data("zoo:mnist/train[:3]")
    source.read([0])[:] = 1


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(28), st.just(28))), st.integers(0, 255))
def test_packing_loses_nothing(tmp_path: Path, x: np.ndarray, label: int) -> None:
    y = np.full(len(x), label, np.uint8)
    (tmp_path / "a.xz").write_bytes(embedded.pack(x, y))
    pixels, labels = embedded.unpack(tmp_path / "a.xz", len(x))
    assert np.array_equal(pixels, x)
    assert np.array_equal(labels, y)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(3), st.integers(1, 5), st.integers(1, 5))))
def test_packing_colour_loses_nothing(tmp_path: Path, x: np.ndarray) -> None:
    y = np.arange(len(x), dtype=np.uint8)
    (tmp_path / "a.xz").write_bytes(embedded.pack(x, y))
    pixels, labels = embedded.unpack(tmp_path / "a.xz", len(x), x.shape[1:])
    assert np.array_equal(pixels, x)
    assert np.array_equal(labels, y)


def test_several_files_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(4 * 784).reshape(4, 28, 28).astype(np.uint8), np.arange(4, dtype=np.uint8)
    (tmp_path / "data").mkdir()
    for number, part in enumerate((slice(0, 2), slice(2, 4))):
        (tmp_path / "data" / f"{number}.xz").write_bytes(embedded.pack(x[part], y[part]))
    monkeypatch.setattr(zoo, "folders", lambda: (tmp_path,))
    monkeypatch.setitem(embedded.PARTS, "mnist", {"test": embedded.Split(4, ("0.xz", "1.xz"), embedded.digest(x, y))})
    pixels, labels, _ = embedded.load("mnist", "test")
    assert np.array_equal(pixels[:, 0], x)
    assert labels.tolist() == [0, 1, 2, 3]


def test_a_deleted_set_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "folders", lambda: (tmp_path,))
    with pytest.raises(BadInput, match=r"zoo:mnist/test is not here: .*neurotest-lab .* run `neurotest data get mnist`"):
        data("zoo:mnist/test")


def test_damaged_files(tmp_path: Path) -> None:
    x, y = np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.uint8)
    x[0] = np.random.default_rng(0).integers(0, 256, (28, 28))
    good = embedded.pack(x, y)
    spoiled = [good[:n] for n in range(0, len(good), 31)] + [
        b"no xz",
        embedded.pack(x[:1], y[:1]),
        embedded.pack(x[[0, 1, 1]], y[[0, 0, 0]]),
    ]
    spoiled += [good[:n] + bytes([good[n] ^ 0x55]) + good[n + 1 :] for n in range(0, len(good), 31)]
    for number, content in enumerate(spoiled):
        (tmp_path / f"{number}.xz").write_bytes(content)
        with pytest.raises(BadInput, match=f"{number}.xz is damaged.*install neurotest again"):
            embedded.unpack(tmp_path / f"{number}.xz", 2)


@pytest.mark.parametrize(
    ("name", "split", "message"), [("mnits", "test", "Did you mean mnist"), ("mnist", "tset", "Did you mean test")]
)
def test_unknown_names(name: str, split: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        embedded.load(name, split)
