"""What a column of a Parquet file may take is found in its pages: never less than it takes, whatever wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.bombs.inputs import png
from tests.fuzz.bombs.thrift import I16, I32, STRUCT, File, Raw, find, varint, written
from tests.refusals import refused

import neurotest
from neurotest.data import pages
from neurotest.reading import check_unpacked, on_disk

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (pip install 'neurotest[data]').")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.plain


def leaf(file: Path, column: int = 0) -> tuple[int, Any, Any]:
    metadata = pq.ParquetFile(file).metadata
    return os.open(file, os.O_RDONLY), metadata.row_group(0).column(column), metadata.schema.column(column)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages") / "f.parquet"


LISTS = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=40)), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(LISTS, st.sampled_from(["1.0", "2.0"]), st.sampled_from(["none", "snappy", "zstd", "lz4", "gzip"]), st.integers(1, 200))
def test_the_longest_list_is_found(place: Path, rows: list[Any], version: str, compression: str, page: int) -> None:
    table = pa.table({"x": pa.array(rows, pa.list_(pa.int64()))})
    pq.write_table(table, place, data_page_version=version, compression=compression, data_page_size=page, write_batch_size=7)
    handle, about, schema = leaf(place)
    headers = pages._pages(handle, about, "f")
    os.close(handle)
    assert sum(one.values for one in headers if one.kind != pages.DICTIONARY) == about.num_values
    handle = os.open(place, os.O_RDONLY)
    longest = pages._longest(handle, about, headers, schema.max_repetition_level, "f")
    os.close(handle)
    assert longest == max(1, *(len(row or ()) for row in rows), 1)  # an empty list has a level, too


def test_nested_lists_count_all_their_values(place: Path) -> None:
    rows = [np.zeros((3, 5, 7), np.uint8).tolist(), np.zeros((2, 2, 2), np.uint8).tolist()]
    pq.write_table(pa.table({"x": rows}), place)
    handle, about, schema = leaf(place)
    assert pages._longest(handle, about, pages._pages(handle, about, "f"), schema.max_repetition_level, "f") == 105
    os.close(handle)


def test_rows_at_once_fit_the_bytes_they_may_take(place: Path) -> None:
    cells = {
        "small": ([b"a" * 10] * 3000, pages.ROWS),
        "large": ([bytes([n % 251]) * (1 << 20) for n in range(80)], 1),
    }
    for cell, (values, most) in cells.items():
        for dictionary in (True, False):
            pq.write_table(pa.table({"image": values}), place, use_dictionary=dictionary, compression="none")
            with open(place, "rb") as stream:
                rows = pages.rows_at_once(stream.fileno(), pq.ParquetFile(place).metadata, 0, "image", 1, "f")
            assert 1 <= rows <= pages.ROWS
            assert rows * len(values[0]) <= 2 * pages.BATCH, (cell, dictionary)
            assert rows >= most


def test_a_large_page_is_read_if_it_is_large_on_the_disk(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (2, 70 << 20), dtype=np.uint8)
    pq.write_table(pa.table({"image": [row.tobytes() for row in values]}), tmp_path / "f.parquet")
    with refused("unsupported", "image"):  # and not: too large
        neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")


def test_a_footer_of_many_row_groups_is_read(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "f.parquet", pa.schema({"x": pa.list_(pa.uint8()), "y": pa.int64()})) as out:
        part = pa.table({"x": pa.array([[1, 2, 3]], pa.list_(pa.uint8())), "y": [0]})
        for _ in range(11_000):
            out.write_table(part)
    with open(tmp_path / "f.parquet", "rb") as stream:
        stream.seek(-8, os.SEEK_END)
        assert int.from_bytes(stream.read(4), "little") > pages.SMALL
    source = neurotest.data(f"parquet:{tmp_path / 'f.parquet'}", limit=20)
    assert len(source.read(np.arange(20))) == 20


def test_holes_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(b"a" * 100_000)
    assert on_disk(tmp_path / "full") == 100_000
    with open(tmp_path / "holes", "wb") as out:
        out.write(b"a" * 5000)
        out.truncate(1 << 30)
    with open(tmp_path / "holes", "rb") as stream:
        stream.seek(7)
        assert 5000 <= on_disk(stream.fileno()) < 1 << 20
        assert stream.tell() == 7


def test_what_unpacks_to_little_or_to_few_times_its_size_is_read() -> None:
    check_unpacked("f", 256 << 20, 0)
    check_unpacked("f", 2000, 1000, always=10, times=2)
    with refused("too-large", "unpacked"):
        check_unpacked("f", 2001, 1000, always=10, times=2)
    with refused("too-large", "memory"):
        check_unpacked("f", 1 << 60, 1 << 60)


@pytest.mark.parametrize("field", [5, 7, 8, 2])
def test_a_field_of_the_wrong_kind_is_refused(tmp_path: Path, field: int) -> None:
    """Thrift's `true` where a header or a size belongs. The fields before it are the kind and both sizes."""
    header, last, kind = bytearray(), 0, {5: pages.DATA, 7: pages.DICTIONARY, 8: pages.DATA_2, 2: pages.INDEX}[field]
    for number in sorted({1, 2, 3, field}):
        value = b"" if number == field else bytes([2 * kind])
        header += bytes([number - last << 4 | (1 if number == field else 5)]) + value
        last = number
    if field == 2:  # a structure where a size belongs
        header = bytearray(b"\x15\x02\x1c\x00\x15\x02")
    (tmp_path / "page").write_bytes(bytes(header) + b"\x00")
    handle = os.open(tmp_path / "page", os.O_RDONLY)
    with pytest.raises(ValueError, match="is not a"):
        pages._page(handle, 0)
    os.close(handle)


@pytest.mark.parametrize("change", ["two headers", "another kind", "twice", "as 16 bits", "more than 32 bits", "beyond 16 bits"])
def test_a_header_that_can_be_read_in_two_ways_is_refused(tmp_path: Path, change: str) -> None:
    """Thrift and pyarrow would take one of two values, and not the one that is checked."""
    levels = [[number, I32, value] for number, value in enumerate((1, 0, 3, 3), 1)]
    header = [[1, I32, 0], [2, I32, 1 << 30], [3, I32, 10], [5, STRUCT, levels]]
    changed = {
        "two headers": [*header, [8, STRUCT, [[number, I32, 0] for number in range(1, 7)]]],
        "another kind": [[1, I32, 3], *header[1:]],
        "twice": [*header[:2], [2, I32, 1000], *header[2:]],
        "as 16 bits": [header[0], [2, I16, 1000], *header[2:]],
        "more than 32 bits": [*header[:2], [3, I32, Raw(varint(1 << 32))], header[3]],
        "beyond 16 bits": [*header, [(1 << 16) + 2, I32, 1000]],
    }
    for fields in (header, changed[change]):
        (tmp_path / "page").write_bytes(written(fields))
        with open(tmp_path / "page", "rb") as stream:
            if fields is header:
                assert pages._page(stream.fileno(), 0).unpacked == 1 << 30
                continue
            with pytest.raises(ValueError, match=r"belong|twice|bits"):
                pages._page(stream.fileno(), 0)


def changed(folder: Path, table: Any, **options: Any) -> File:
    pq.write_table(pa.table(table), folder / "f.parquet", **options)
    return File(folder / "f.parquet")


def test_a_page_that_ends_behind_its_column_is_refused(tmp_path: Path) -> None:
    file = changed(tmp_path, {"x": [[1, 2]] * 3})
    find(file.column(), 7, new=find(file.column(), 7) - 1)
    file.save()
    with refused("damaged", "size"):
        neurotest.data(f"parquet:{file.path}")


@pytest.mark.parametrize("rows", [[4, 3], [3, 4], [-1, 4], [1 << 40, 1 << 40]])
def test_rows_that_the_row_groups_do_not_have_are_refused(tmp_path: Path, rows: list[int]) -> None:
    file = changed(tmp_path, {"x": [[1, 2]] * 3})
    find(file.footer, 3, new=rows[0])
    find(file.group, 3, new=rows[1])
    file.save()
    with refused(("damaged", "too-large"), "rows"):
        neurotest.data(f"parquet:{file.path}")


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("parquet-mr version 1.2.8", False),
        ("parquet-mr version 1.2.8 (build abc)", False),
        ("Parquet-MR version 1.1.99", False),
        ("parquet-mr", False),
        ("parquet-mr 1.2.8", False),
        ("parquet-mr version x", False),
        ("parquet-mr version 1.2.9", True),
        ("parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)", True),
        ("parquet-mr version 1.10.99.7.1.7.0-551 (build abc)", True),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("", True),
    ],
)
def test_writers_whose_columns_are_read_beyond_their_end_are_refused(tmp_path: Path, name: str, is_read: bool) -> None:
    file = changed(tmp_path, {"x": [[1, 2]] * 3})
    find(file.footer, 6, new=name.encode())
    file.save()
    if is_read:
        assert neurotest.data(f"parquet:{file.path}").read(np.arange(3)).tolist() == [[1, 2]] * 3
        return
    with refused("unsupported", "writer"):
        neurotest.data(f"parquet:{file.path}")


@pytest.mark.parametrize("encoding", [3, 4])
def test_levels_in_an_old_encoding_are_refused(tmp_path: Path, encoding: int) -> None:
    def change(header: Any, content: bytes) -> Any:
        if find(header, 1) == pages.DATA:
            find(find(header, 5), encoding, new=4)
        return header, content

    file = changed(tmp_path, {"x": [[1, 2]] * 3}).pages(change)
    file.save()
    with refused("unsupported", "levels"):
        neurotest.data(f"parquet:{file.path}")


def test_levels_that_are_not_there_have_any_encoding(tmp_path: Path) -> None:
    """parquet-mr writes so where a column has no lists."""

    def change(header: Any, content: bytes) -> Any:
        if find(header, 1) == pages.DATA:
            find(find(header, 5), 4, new=4)
        return header, content

    file = changed(tmp_path, {"label": [0, 1]}).pages(change)
    file.save()
    with open(file.path, "rb") as stream:
        assert pages.rows_at_once(stream.fileno(), pq.ParquetFile(file.path).metadata, 0, "label", 8, "f") == pages.ROWS


@pytest.mark.parametrize("levels", [b"\xff", b"\x80\x80\x80\x80\x80\x01\x01", b"\x00\x01", b"\x01\x01", b"\x04\x00"])
def test_levels_without_an_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: bytes) -> None:
    monkeypatch.setattr(pages, "BATCH", 1)  # a short list is looked at, too

    def change(header: Any, content: bytes) -> Any:
        if find(header, 1) == pages.DATA:
            length = int.from_bytes(content[:4], "little")
            content = len(levels).to_bytes(4, "little") + levels + content[4 + length :]
            find(header, 2, new=len(content))
            find(header, 3, new=len(content))
        return header, content

    file = changed(tmp_path, {"x": [[1, 2]] * 3}, compression="none").pages(change)
    file.save()
    with refused("damaged", "levels", match=r"without a length|fewer levels than values"):
        neurotest.data(f"parquet:{file.path}")


def test_only_the_bytes_of_a_picture_are_read(tmp_path: Path) -> None:
    rows = [{"path": "a" * 1000, "bytes": png(4, 4), "other": b"b" * 1000}] * 3
    pq.write_table(pa.table({"image": rows}), tmp_path / "f.parquet")
    source = neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")
    assert source.read(np.arange(3)).shape[0] == 3
    chunk = next(source._table.chunks(0, "image"))  # type: ignore[attr-defined]
    assert [chunk.type.field(i).name for i in range(chunk.type.num_fields)] == ["bytes"]


def test_leaves_that_are_read_together_share_the_bytes(place: Path) -> None:
    leaves = {f"image.f{n}": [bytes([n]) * (1 << 16)] * 1024 for n in range(8)}
    pq.write_table(pa.table({"image": [b"a"] * 1024, **leaves}), place, use_dictionary=False, write_batch_size=16)
    with open(place, "rb") as stream:
        rows = pages.rows_at_once(stream.fileno(), pq.ParquetFile(place).metadata, 0, "image", 1, "f")
    assert rows * 8 * (1 << 16) <= pages.BATCH


def test_metadata_of_hugging_face_that_is_too_deep_names_nothing(tmp_path: Path) -> None:
    table = pa.table({"x": [[1, 2]] * 2, "label": [0, 1]}).replace_schema_metadata({"huggingface": "[" * 200_000})
    pq.write_table(table, tmp_path / "f.parquet")
    source = neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")
    assert source.classes is None
    assert list(source.labels) == [0, 1]


@pytest.mark.parametrize("stored", [True, False])
def test_labels_are_numbered_across_chunks(tmp_path: Path, stored: bool) -> None:
    names = ["dog", "cat", "eel"]
    rows = [names[number % 3] if number > 1500 else "dog" for number in range(4000)]
    table = pa.table({"x": [[1, 2]] * 4000, "label": pa.array(rows).dictionary_encode(), "id": [f"n{n}" for n in range(4000)]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=1700, store_schema=stored)
    source = neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")
    assert source.classes == ("cat", "dog", "eel")
    assert [source.classes[number] for number in source.labels] == rows
    assert source.keys([3999, 0, 7]) == ["n3999", "n0", "n7"]


def test_files_with_names_and_with_numbers_are_kept_apart(tmp_path: Path) -> None:
    for number, labels in enumerate((["a", "b"], [0, 1])):
        pq.write_table(pa.table({"x": [[1, 2]] * 2, "label": labels}), tmp_path / f"{number}.parquet")
    with refused("conflict", "labels"):
        neurotest.data(f"parquet:{tmp_path}")


@pytest.mark.parametrize("dictionary", [True, False])
def test_an_id_that_is_missing_has_a_name(tmp_path: Path, dictionary: bool) -> None:
    ids = pa.array(["a", None, "b"])
    pq.write_table(pa.table({"x": [[1]] * 3, "id": ids.dictionary_encode() if dictionary else ids}), tmp_path / "f.parquet")
    assert neurotest.data(f"parquet:{tmp_path / 'f.parquet'}").keys([0, 1, 2]) == ["a", "None", "b"]


def test_columns_that_pyarrow_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    """It would read both: the bytes in a structure, and a column that is called so."""
    table = {"image": [{"bytes": png(4, 4)}], "image.bytes": [b"a" * 1000]}
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    with refused("duplicate", "column"):
        neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")
    pq.write_table(pa.table({"image": [png(4, 4)], "image.path": ["a"]}), tmp_path / "f.parquet")
    assert len(neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")) == 1
