"""Bombs in Parquet: large cells that compress, and small ones that encodings repeat."""

from __future__ import annotations

import functools
import io
import os
import shutil
import struct
from pathlib import Path
from typing import Any

from tests.fuzz.bombs.inputs import png
from tests.fuzz.bombs.registry import bomb, fine
from tests.fuzz.bombs.thrift import BINARY, I16, I32, STRUCT, Fields, File, Raw, find, varint, written

SPEC = "parquet:{}/bomb.parquet"
parquet = functools.partial(bomb, read=SPEC, needs=("pyarrow",))
MB = 1 << 20


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    # The smallest and largest value of a column would be looked for in all of it.
    options = {"compression": "zstd", "store_schema": False, "write_statistics": False, **options}
    pq.write_table(pa.table(columns), folder / "bomb.parquet", **options)
    return folder / "bomb.parquet"


def repeated(value: Any, kind: Any, count: int) -> Any:
    """One value in many rows, as a dictionary has it."""
    import numpy as np
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([value], kind))


@parquet("Parquet, one cell of 700 MB")
def one_cell(folder: Path) -> None:
    write(folder, {"image": [bytes(700 * MB)]}, use_dictionary=False)


@parquet("Parquet, one cell of 700 MB, sizes in the footer changed")
def lying_footer(folder: Path) -> None:
    from pyarrow import parquet as pq

    file = write(folder, {"image": [bytes(700 * MB)]}, use_dictionary=False)
    size = pq.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size
    content = file.read_bytes()
    assert varint(2 * size) in content
    file.write_bytes(content.replace(varint(2 * size), varint(2 * 1000, len(varint(2 * size)))))


@parquet("Parquet, 30 cells of 60 MB")
def many_cells(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    with pq.ParquetWriter(
        folder / "bomb.parquet", pa.schema({"image": pa.binary()}), compression="zstd", write_statistics=False
    ) as out:
        for _ in range(30):
            out.write_batch(pa.record_batch({"image": [bytes(60 * MB)]}))


@parquet("Parquet, a cell of 8 MB in 4,096 rows by a dictionary")
def dictionary(folder: Path) -> None:
    import pyarrow as pa

    write(folder, {"image": repeated(bytes(8 * MB), pa.binary(), 4096)}, dictionary_pagesize_limit=64 * MB)


@parquet("Parquet, a cell of 8 MB in 256 rows by shared prefixes")
def prefixes(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    options = {
        "use_dictionary": False,
        "column_encoding": {"image": "DELTA_BYTE_ARRAY"},
        "compression": "zstd",
        "write_statistics": False,
    }
    with pq.ParquetWriter(folder / "bomb.parquet", pa.schema({"image": pa.binary()}), **options) as out:
        for _ in range(32):
            out.write_batch(pa.record_batch({"image": [bytes(8 * MB)] * 8}))


@parquet("Parquet, a list of 200 million numbers by runs")
def runs(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa

    write(folder, {"x": pa.LargeListArray.from_arrays([0, 200_000_000], pa.array(np.zeros(200_000_000, np.uint8)))})


@parquet("Parquet, 60 lists of 8 million numbers behind a short one")
def later_lists(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet as pq

    kind = pa.large_list(pa.uint8())
    with pq.ParquetWriter(folder / "bomb.parquet", pa.schema({"x": kind}), compression="zstd", write_statistics=False) as out:
        for size in [4] + [8_000_000] * 60:
            column = pa.LargeListArray.from_arrays([0, size], pa.array(np.zeros(size, np.uint8)))
            out.write_batch(pa.record_batch({"x": column}))


@parquet("Parquet, empty rows of a fixed 400 MB")
def fixed(folder: Path) -> None:
    import pyarrow as pa

    write(folder, {"image": pa.array([None] * 3, pa.binary(400 * MB))})


@parquet("Parquet, 64 million rows by runs")
def rows(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet as pq

    part = pa.table({"image": repeated(png(4, 4), pa.binary(), 4_000_000), "label": np.zeros(4_000_000, np.int64)})
    with pq.ParquetWriter(
        folder / "bomb.parquet", part.schema, compression="zstd", store_schema=False, write_statistics=False
    ) as out:
        for _ in range(16):
            out.write_table(part)


@parquet("Parquet, a label of 1 MB in 4,096 rows")
def label(folder: Path) -> None:
    import pyarrow as pa

    labels = pa.DictionaryArray.from_arrays([0] * 4095 + [1], pa.array(["cat", "a" * MB]))
    write(folder, {"image": [png(4, 4)] * 4096, "label": labels})


@parquet("Parquet, an id of 4 MB in 4,096 rows", read=lambda folder: keys(folder))
def ids(folder: Path) -> None:
    import pyarrow as pa

    options = {"dictionary_pagesize_limit": 64 * MB}
    write(folder, {"image": [png(4, 4)] * 4096, "id": repeated("a" * 4 * MB, pa.string(), 4096)}, **options)


def keys(folder: Path, count: int = 4096) -> object:
    from neurotest.data.spec import data

    return data(SPEC.format(folder)).keys(range(count))


@parquet("Parquet, an image of 169 megapixels in a cell")
def image(folder: Path) -> None:
    write(folder, {"image": [png(13_000, 13_000)]})


def footer(folder: Path, groups: int, columns: int) -> None:
    """Nothing but a footer: columns of which only the offset is stored."""
    group = b"\x19\xfc" + varint(columns) + b"\x26\x00\x00" * columns + b"\x16\x02\x16\x02\x00"
    schema = b"\x19\x1c\x48\x01s\x15\x00\x00"
    content = b"\x15\x02" + schema + b"\x16\x02\x19\xfc" + varint(groups) + group * groups + b"\x00"
    (folder / "bomb.parquet").write_bytes(b"PAR1" + content + struct.pack("<I", len(content)) + b"PAR1")


@parquet("Parquet, a footer of 4 million columns")
def columns(folder: Path) -> None:
    footer(folder, 16, 250_000)


@parquet("Parquet, a footer of 600,000 columns")
def some_columns(folder: Path) -> None:
    footer(folder, 6, 100_000)


def fields_of(count: int, rows: int, size: int) -> dict[str, Any]:
    """A picture, and columns of large cells beside it."""
    import pyarrow as pa

    large = pa.array([bytes(size)] * rows, pa.binary())
    return {"bytes": pa.array([png(4, 4)] * rows, pa.binary())} | {f"f{number}": large for number in range(count)}


@fine("Parquet, 40 cells of 65 kB beside each of 1,024 pictures", SPEC, needs=("pyarrow",))
def wide(folder: Path) -> None:
    import pyarrow as pa

    fields = fields_of(40, 1024, 65_000)
    write(folder, {"image": pa.StructArray.from_arrays(list(fields.values()), names=list(fields))})


@parquet("Parquet, a list of 8 million numbers in lists in lists")
def deep_lists(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa

    size = 8_000_000
    column: Any = pa.array(np.zeros(size, np.uint8))
    for _ in range(40):
        column = pa.ListArray.from_arrays(np.arange(size + 1, dtype=np.int32), column)
    write(folder, {"x": pa.ListArray.from_arrays(pa.array([0, size], pa.int32()), column)})


@fine("Parquet, a label of 4,096 bytes in a million rows", SPEC, needs=("pyarrow",))
def long_labels(folder: Path) -> None:
    import pyarrow as pa

    count = 1 << 20
    write(folder, {"image": repeated(png(4, 4), pa.binary(), count), "label": repeated("a" * 4096, pa.string(), count)})


def texts(folder: Path, column: str) -> None:
    """A text of 4,096 bytes in each of 2^17 rows, all different."""
    import pyarrow as pa

    count = 1 << 17
    values = pa.array([f"{number:04096d}" for number in range(count)])
    write(folder, {"image": repeated(png(4, 4), pa.binary(), count), column: values}, use_dictionary=["image"])


@parquet("Parquet, 130,000 labels of 4,096 bytes")
def many_labels(folder: Path) -> None:
    texts(folder, "label")


@parquet("Parquet, 130,000 ids of 4,096 bytes", read=lambda folder: keys(folder, 1 << 17))
def many_ids(folder: Path) -> None:
    texts(folder, "id")


@bomb("Parquet, an id of 4,096 bytes in a million rows", lambda folder: keys(folder, 1 << 20), refused=None, needs=("pyarrow",))
def equal_ids(folder: Path) -> None:
    import pyarrow as pa

    count = 1 << 20
    write(folder, {"image": repeated(png(4, 4), pa.binary(), count), "id": repeated("a" * 4096, pa.string(), count)})


@parquet("Parquet, 4 rows in the footer, 2^29 in its row group")
def rows_of_a_group(folder: Path) -> None:
    file = File(write(folder, {"image": [png(4, 4)] * 4}))
    find(file.group, 3, new=1 << 29)
    file.save()


def one_list(folder: Path, count: int) -> File:
    """Made once: it takes seconds, and several bombs change it."""
    import numpy as np
    import pyarrow as pa

    common = Path(os.environ["NEUROTEST_CACHE"], f"list of {count}.parquet")
    if not common.exists():
        column = pa.LargeListArray.from_arrays([0, count], pa.array(np.zeros(count, np.uint8)))
        shutil.copy(write(folder, {"x": column}, data_page_size=1 << 30), common)
    return File(Path(shutil.copy(common, folder / "bomb.parquet")))


@parquet("Parquet, a list of 200 million numbers, a second header that says one")
def two_headers(folder: Path) -> None:
    def change(header: Fields, content: bytes) -> tuple[Fields, bytes]:
        if find(header, 1) == 0:
            numbers = enumerate((1, 0, 1, 8, 0, 0), 1)
            header.append([8, STRUCT, [[number, I32, value] for number, value in numbers]])
        return header, content

    one_list(folder, 200_000_000).pages(change).save()


def large_cell(folder: Path) -> File:
    return File(write(folder, {"image": [bytes(300 * MB)]}, use_dictionary=False))


@parquet("Parquet, a page of 300 MB, its size once more as a shorter number")
def size_twice(folder: Path) -> None:
    def change(header: Fields, content: bytes) -> tuple[Fields, bytes]:
        return [header[0], header[1], [2, I16, 1000], *header[2:]], content

    large_cell(folder).pages(change).save()


@parquet("Parquet, a page of 300 MB, its size once more in a field beyond 16 bits")
def size_beyond(folder: Path) -> None:
    def change(header: Fields, content: bytes) -> tuple[Fields, bytes]:
        size, header[1][2] = header[1][2], 1000
        return [*header, [(1 << 16) + 2, I32, size]], content

    large_cell(folder).pages(change).save()


@parquet("Parquet, a page of 300 MB behind one whose size has more than 32 bits")
def size_cut(folder: Path) -> None:
    file = large_cell(folder)
    before = written([[1, I32, 1], [2, I32, 0], [3, I32, Raw(varint(1 << 32))]])
    at, about = find(file.column(), 9), file.column()
    file.body = file.body[:at] + before + file.body[at:]
    find(about, 7, new=find(about, 7) + len(before))
    file.save()


@parquet("Parquet, lists of 200 million numbers whose levels have no length")
def packed_levels(folder: Path) -> None:
    import pyarrow as pa

    count = 200_000_000
    levels = b"\x02\x00\x00\x00\x02\x00" + b"\xff" * (count // 8 - 6)  # a run of one zero, where a length is expected
    lists = 6 * 8 - 2

    def change(header: Fields, content: bytes) -> tuple[Fields, bytes]:
        content = pa.Codec("zstd").decompress(content, find(header, 2), asbytes=True)
        if find(header, 1) == 0:
            content = levels + content[4 + int.from_bytes(content[:4], "little") :]
            find(find(header, 5), 4, new=4)
        packed = pa.Codec("zstd").compress(content, asbytes=True)
        find(header, 2, new=len(content))
        find(header, 3, new=len(packed))
        return header, packed

    file = one_list(folder, count).pages(change)
    find(file.group, 3, new=lists)
    find(file.footer, 3, new=lists)
    file.save()


@parquet("Parquet, a cell of 300 MB in a column that its row group calls otherwise")
def other_name(folder: Path) -> None:
    file = large_cell(folder)
    find(file.column(), 3, new=[BINARY, [b"other"]])
    file.save()


@parquet("Parquet, a cell of 8 MB in 4,096 rows by a dictionary, called a number by its row group")
def other_kind(folder: Path) -> None:
    dictionary(folder)
    file = File(folder / "bomb.parquet")
    find(file.column(), 1, new=1)
    file.save()


@parquet("Parquet, a page of 1.5 GB of holes that says it is small")
def hole(folder: Path) -> None:
    file = File(write(folder, {"image": [png(4, 4)]}, use_dictionary=False))
    size, about = 1500 * MB, file.column()

    def change(header: Fields, content: bytes) -> tuple[Fields, bytes]:
        find(header, 3, new=size)
        return header, b""

    start = find(about, 9)
    file.pages(change)
    find(about, 4, new=0)
    head, length = file.body, len(file.body) - start
    find(about, 7, new=length + size)
    footer = written(file.footer)
    with open(file.path, "wb") as out:
        out.write(head)
        out.seek(size, io.SEEK_CUR)
        out.write(footer + struct.pack("<I", len(footer)) + b"PAR1")


@fine("Parquet, 300 photographs, compressed", SPEC, needs=("pyarrow",))
def photographs(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    values = np.random.default_rng(0).integers(0, 256, (300, 160, 160, 3), dtype=np.uint8)
    contents = []
    for value in values:
        out = io.BytesIO()
        Image.fromarray(value).save(out, "PNG")
        contents.append(out.getvalue())
    write(folder, {"image": contents, "label": ["cat", "dog"] * 150}, row_group_size=300)


@fine("Parquet, 20,000 equal rows of zeros", SPEC, needs=("pyarrow",))
def blank(folder: Path) -> None:
    import numpy as np

    write(folder, {"x": list(np.zeros((20_000, 784), np.uint8)), "y": np.zeros(20_000, np.int64)})
