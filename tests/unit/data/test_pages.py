"""What a column of a Parquet file may take is found in its pages: never less than it takes, whatever wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurotest
from neurotest.data import pages
from neurotest.errors import BadInput
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
    with pytest.raises(BadInput, match="row 0 is no PNG"):  # and not: too large
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
    with pytest.raises(BadInput, match="at most 2 times as large as on the disk"):
        check_unpacked("f", 2001, 1000, always=10, times=2)
    with pytest.raises(BadInput, match=r"would need .* are free"):
        check_unpacked("f", 1 << 60, 1 << 60)
