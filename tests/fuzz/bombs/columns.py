"""Bombs in Parquet: large cells that compress, and small ones that encodings repeat."""

from __future__ import annotations

import functools
import io
import struct
from pathlib import Path
from typing import Any

from tests.fuzz.bombs.inputs import png
from tests.fuzz.bombs.registry import bomb, fine

SPEC = "parquet:{}/bomb.parquet"
parquet = functools.partial(bomb, read=SPEC, needs=("pyarrow",))
MB = 1 << 20


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd", store_schema=False, **options)
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


def varint(number: int, length: int = 0) -> bytes:
    """As thrift writes it, or in more bytes."""
    out = bytearray()
    while number > 127 or len(out) + 1 < length:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@parquet("Parquet, 30 cells of 60 MB")
def many_cells(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    with pq.ParquetWriter(folder / "bomb.parquet", pa.schema({"image": pa.binary()}), compression="zstd") as out:
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

    options = {"use_dictionary": False, "column_encoding": {"image": "DELTA_BYTE_ARRAY"}, "compression": "zstd"}
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
    with pq.ParquetWriter(folder / "bomb.parquet", pa.schema({"x": kind}), compression="zstd") as out:
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
    with pq.ParquetWriter(folder / "bomb.parquet", part.schema, compression="zstd", store_schema=False) as out:
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


def keys(folder: Path) -> object:
    from neurotest.data.spec import data

    return data(SPEC.format(folder)).keys(range(4096))


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
