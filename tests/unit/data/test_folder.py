"""dir: class folders and flat ones, grey and colour, and every kind of file that cannot be used."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neurotest.data import Source, data, listing
from neurotest.errors import BadInput


def picture(seed: int, height: int = 6, width: int = 5, channels: int = 3) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def everything(source: Source) -> np.ndarray:
    return source.read(np.arange(len(source)))


def bomb(path: Path, side: int) -> None:
    """A few bytes of PNG that promise side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b""))


def test_class_folders(tmp_path: Path) -> None:
    dog = save(tmp_path / "dog" / "a.png", picture(0))
    cat = save(tmp_path / "cat" / "b.png", picture(1))
    (tmp_path / "emu").mkdir()
    source = data(f"dir:{tmp_path}")
    assert source.classes == ("cat", "dog", "emu")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1]
    assert source.shape == (3, 6, 5)
    assert (everything(source) == np.stack([cat, dog]).transpose(0, 3, 1, 2)).all()
    assert source.names is not None
    assert source.names.tolist() == ["cat/b.png", "dog/a.png"]


def test_flat_folders_are_unlabelled_and_in_the_order_of_names(tmp_path: Path) -> None:
    pixels = [save(tmp_path / name, picture(i, channels=1)) for i, name in enumerate(["a.png", "b.PNG", "c.webp"][:2])]
    save(tmp_path / "c.webp", picture(7, channels=1), lossless=True)
    save(tmp_path / "d.jpg", picture(8, channels=1))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(b"no picture")
    source = data(f"dir:{tmp_path}", shape=(1, 6, 5))
    assert source.labels is None
    assert source.classes is None
    assert len(source) == 4
    assert source.skipped == ()
    assert (everything(source)[:2, 0] == np.stack(pixels)).all()
    part = data(f"dir:{tmp_path}[1:3]", shape=(1, 6, 5))
    assert part.ids().tolist() == source.ids()[1:3].tolist()


def test_grey_only_if_all_are_or_the_target_says_so(tmp_path: Path) -> None:
    grey = save(tmp_path / "a.png", picture(0, channels=1))
    assert data(f"dir:{tmp_path}").shape == (1, 6, 5)
    assert (everything(data(f"dir:{tmp_path}", shape=(3, 6, 5)))[0] == grey).all()
    save(tmp_path / "b.png", np.repeat(picture(1, channels=1)[:, :, None], 3, axis=2))
    assert data(f"dir:{tmp_path}").shape == (3, 6, 5)
    assert (everything(data(f"dir:{tmp_path}", shape=(1, 6, 5)))[1, 0] == picture(1, channels=1)).all()


def test_black_and_white_palette_and_opaque_alpha(tmp_path: Path) -> None:
    Image.fromarray(picture(0)).convert("1").save(tmp_path / "a.png")
    Image.fromarray(picture(1)).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "b.png")
    opaque = picture(2, channels=4)
    opaque[..., 3] = 255
    save(tmp_path / "c.png", opaque)
    source = data(f"dir:{tmp_path}")
    assert len(source) == 3
    assert set(np.unique(everything(source)[0])) <= {0, 255}
    assert (everything(source)[2] == opaque[..., :3].transpose(2, 0, 1)).all()


def spoiled(path: Path) -> dict[str, str]:
    """Files that cannot be used beside two that can, and what must be said about each."""
    save(path / "good1.png", picture(0))
    save(path / "good2.jpg", picture(1))
    save(path / "cut.png", picture(2, 6, 5))
    (path / "cut.png").write_bytes((path / "cut.png").read_bytes()[:70])
    (path / "empty.png").write_bytes(b"")
    (path / "text.jpg").write_text("no picture")
    save(path / "wide.png", picture(3, 6, 9))
    save(path / "old.bmp", picture(5))
    frames = [Image.fromarray(picture(i)) for i in (6, 7)]
    frames[0].save(path / "moving.webp", save_all=True, append_images=frames[1:])
    return {
        "cut.png": "cut off",
        "empty.png": "damaged or not an image",
        "moving.webp": "animated",
        "old.bmp": "not PNG, JPEG or WebP",
        "text.jpg": "damaged or not an image",
        "wide.png": "9x6 pixels, expected 5x6",
    }


def test_what_cannot_be_used_is_skipped_counted_and_listed(tmp_path: Path) -> None:
    expected = spoiled(tmp_path)
    source = data(f"dir:{tmp_path}")
    assert source.names is not None
    assert source.names.tolist() == ["good1.png", "good2.jpg"]
    assert [one.file for one in source.skipped] == sorted(expected)
    for one in source.skipped:
        assert expected[one.file] in one.reason
    assert str(tmp_path) not in " ".join(one.reason for one in source.skipped)


@pytest.mark.parametrize("name", ["cut.png", "empty.png", "moving.webp", "old.bmp", "text.jpg", "wide.png"])
def test_strict_refuses_each_of_them(tmp_path: Path, name: str) -> None:
    expected = spoiled(tmp_path)
    for other in set(expected) - {name}:
        (tmp_path / other).unlink()
    assert len(data(f"dir:{tmp_path}")) == 2
    with pytest.raises(BadInput, match=f"{name}: .*{expected[name]}.*--strict"):
        data(f"dir:{tmp_path}", strict=True)


def test_strict_accepts_a_clean_folder(tmp_path: Path) -> None:
    save(tmp_path / "a.png", picture(0))
    assert len(data(f"dir:{tmp_path}", strict=True)) == 1


def test_every_way_of_cutting_a_file_is_survived(tmp_path: Path) -> None:
    save(tmp_path / "good.png", picture(0))
    for name, options in (("x.png", {}), ("x.jpg", {}), ("x.webp", {"lossless": True})):
        save(tmp_path / name, picture(1), **options)
        content = (tmp_path / name).read_bytes()
        for length in range(0, len(content), 5):
            (tmp_path / name).write_bytes(content[:length])
            source = data(f"dir:{tmp_path}", shape=(3, 6, 5))
            assert len(source) + len(source.skipped) == 2
        (tmp_path / name).unlink()


@pytest.mark.parametrize("side", [8001, 11000, 60000])
def test_an_image_bomb_is_refused_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    save(tmp_path / "good.png", picture(0))
    bomb(tmp_path / "bomb.png", side)
    with pytest.raises(BadInput, match=r"bomb.png: .*more than 64 megapixels.*Remove or shrink"):
        data(f"dir:{tmp_path}")


def test_just_below_the_limit_is_an_odd_size(tmp_path: Path) -> None:
    save(tmp_path / "good.png", picture(0))
    save(tmp_path / "good2.png", picture(1))
    bomb(tmp_path / "large.png", 8000)
    assert data(f"dir:{tmp_path}").skipped[0].reason == "8000x8000 pixels, expected 5x6"


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    save(tmp_path / "a.png", picture(0))
    with pytest.raises(BadInput, match=r"none of its 1 images can be used; first a.png: 5x6 pixels, expected 28x28"):
        data(f"dir:{tmp_path}", shape=(3, 28, 28))
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(BadInput, match="none of its 1 images can be used"):
        data(f"dir:{tmp_path}")


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        data(f"dir:{tmp_path}/gone")
    with pytest.raises(BadInput, match="holds no images"):
        data(f"dir:{tmp_path}")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match="is a file"):
        data(f"dir:{tmp_path}/file")
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    with pytest.raises(BadInput, match="no images in its 1 folders"):
        data(f"dir:{tmp_path}/empty")
    save(tmp_path / "mixed" / "a.png", picture(0))
    save(tmp_path / "mixed" / "cat" / "a.png", picture(0))
    with pytest.raises(BadInput, match=r"both images .* and folders"):
        data(f"dir:{tmp_path}/mixed")
    save(tmp_path / "deep" / "train" / "cat" / "a.png", picture(0))
    with pytest.raises(BadInput, match=r"folders inside class folders .*deep/train"):
        data(f"dir:{tmp_path}/deep")


@pytest.mark.parametrize("shape", [(4, 6, 5), (30,)])
def test_a_target_that_wants_no_pictures(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save(tmp_path / "a.png", picture(0))
    with pytest.raises(BadInput, match="1 or 3 channels"):
        data(f"dir:{tmp_path}", shape=shape)


def test_numbered_classes_out_of_order_are_pointed_out(tmp_path: Path) -> None:
    for name in ("2", "10"):
        save(tmp_path / "plain" / name / "a.png", picture(0))
    source = data(f"dir:{tmp_path}/plain")
    assert source.classes == ("10", "2")
    assert "order of their names as text" in source.notes["warnings"][0]
    for name in ("02", "10"):
        save(tmp_path / "padded" / name / "a.png", picture(0))
    assert data(f"dir:{tmp_path}/padded").notes == {}


def test_folders_too_large_for_memory_are_read_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(6):
        save(tmp_path / f"class{i % 2}" / f"{i}.png", picture(i))
    (tmp_path / "class0" / "broken.png").write_bytes(b"")
    kept = data(f"dir:{tmp_path}")
    monkeypatch.setattr(listing, "IN_MEMORY", 0)
    lazy = data(f"dir:{tmp_path}")
    assert isinstance(lazy, listing.FolderSource)
    assert not isinstance(kept, listing.FolderSource)
    assert (everything(lazy) == everything(kept)).all()
    assert (lazy.decodes, kept.decodes) == (True, False)
    assert lazy.ids().tolist() == kept.ids().tolist()
    assert lazy.skipped == kept.skipped
    part = lazy.take([4, 1])
    assert (everything(part) == kept.read([4, 1])).all()
    assert part.ids().tolist() == kept.ids()[[4, 1]].tolist()
    assert part.labels is not None
    assert kept.labels is not None
    assert part.labels.tolist() == kept.labels[[4, 1]].tolist()
    assert (everything(data(f"dir:{tmp_path}[::2]")) == everything(kept)[::2]).all()


def test_a_folder_that_changes_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "IN_MEMORY", 0)
    save(tmp_path / "a.png", picture(0))
    source = data(f"dir:{tmp_path}")
    save(tmp_path / "a.png", picture(1))
    with pytest.raises(BadInput, match="has changed"):
        source.read([0])
    (tmp_path / "a.png").unlink()
    with pytest.raises(BadInput, match="can no longer be read"):
        source.read([0])


def test_a_limit_stops_after_that_many_good_files(tmp_path: Path) -> None:
    for i in range(5):
        save(tmp_path / f"{i}.png", picture(i))
    content = (tmp_path / "0.png").read_bytes()
    for name in ("0.png", "4.png"):
        (tmp_path / name).write_bytes(content[:60])
    source = data(f"dir:{tmp_path}", limit=2)
    assert source.names is not None
    assert source.names.tolist() == ["1.png", "2.png"]
    assert [one.file for one in source.skipped] == ["0.png"]


# -- labels from a table


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(("b.png", "a.png", "2024/c.png", "2024/05/d.png")):
        save(tmp_path / "photos" / name, picture(number, channels=1))
    return tmp_path / "photos"


def table(photos: Path, *rows: str, header: str = "file,label") -> str:
    (photos.parent / "labels.csv").write_text("\n".join((header, *rows)) + "\n")
    return f"dir:{photos}#{photos.parent / 'labels.csv'}"


def test_labels_from_a_table(photos: Path) -> None:
    source = data(table(photos, "a.png,dog", "2024/c.png,cat", "photos/b.png,cat", "d.png,eel"))
    assert source.names is not None
    assert source.names.tolist() == ["a.png", "b.png", "2024/c.png", "2024/05/d.png"]
    assert source.classes == ("cat", "dog", "eel")
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 0, 2]
    assert np.array_equal(everything(source)[0, 0], picture(1, channels=1))
    assert not source.skipped
    assert not source.notes.get("warnings")


def test_class_numbers_stay_numbers(photos: Path) -> None:
    source = data(table(photos, "a.png,3", "b.png,1", "c.png,0", "d.png,1"))
    assert source.labels is not None
    assert source.labels.tolist() == [3, 1, 0, 1]
    assert source.classes == ("0", "1", "2", "3")


def test_what_has_no_label_is_counted(photos: Path) -> None:
    source = data(table(photos, "a.png,dog", "b.png,", "c.png,unclear", "x.png,cat", "d.png,cat"))
    assert source.names is not None
    assert source.names.tolist() == ["a.png", "2024/05/d.png"]
    assert [one.file for one in source.skipped] == ["2024/c.png", "b.png"]
    assert source.notes["warnings"] == [
        "2 of 4 files have no label in labels.csv and are left out (first: b.png).",
        "1 labels of labels.csv are for files that are not in the folder (first: x.png).",
    ]


def test_a_table_in_the_folder_and_slices(photos: Path) -> None:
    table(photos, "a.png,dog", "b.png,cat", "c.png,cat", "d.png,dog")
    (photos.parent / "labels.csv").rename(photos / "labels.csv")
    source = data(f"dir:{photos}#labels.csv[1:3]")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 0]
    odd = photos.rename(photos.parent / "photos#2024")
    (odd / "2024" / "05" / "d.png").unlink()
    (odd / "2024" / "05").rmdir()
    for name in ("a.png", "b.png"):
        (odd / name).unlink()
    assert data(f"dir:{odd}").classes == ("2024",)  # a folder may be called so


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (["a.png,dog", "photos/a.png,cat"], "labels a.png twice, as 'dog' and 'cat'"),
        (["x.png,dog"], "none of its 1 files is in"),
        (["a.png,unclear"], "no label says a class"),
        (["a.png,999999999"], "class numbers are below"),
        ([], "holds no label"),
    ],
)
def test_tables_that_cannot_be_right(photos: Path, rows: list[str], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        data(table(photos, *rows))


def test_tables_that_are_not_there(photos: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no file lables\.csv"):
        data(f"dir:{photos}#lables.csv")
    with pytest.raises(BadInput, match="no file after #"):
        data(f"dir:{photos}#")
    with pytest.raises(BadInput, match="labels positions: for dir: it names files"):
        data(table(photos, "0,dog", header="position,label"))
