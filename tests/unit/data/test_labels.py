"""Labels that people give: every format, names of files and classes; and labels that cannot be right."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.data.labels import Inputs, numbered, placed, read_labels
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput


@pytest.fixture
def pool() -> ArraySource:
    return ArraySource(np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8))


def test_the_short_form_of_label_studio(tmp_path: Path) -> None:
    (tmp_path / "min.json").write_text(
        json.dumps([{"content": "ab" * 8, "position": 3, "label": "dog"}, {"position": 4, "label": ""}])
    )
    assert read_labels(tmp_path / "min.json") == {"ab" * 8: "dog"}


# -- labels that cannot be right


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("position,label\n1,2\n1,3\n", "line 3 labels input 1 as 3, but line 2 says 2"),
        ("position;label\n1;2\n1;3\n", "line 3 labels input 1"),
        ("content,label\nabc,cat\nabc,dog\n", "labels input abc as 'dog'"),
        ("a,b\n1,2\n", "has the columns a, b: expected label and file"),
        ("", "has the columns none"),
        ("position,label\nfirst,2\n", "position 'first' is no number"),
        ("position,label\n-3,2\n", "position '-3' is no number"),
        ("position,label\n", "holds no label"),
        ("position,label\n,\n", "holds no label"),
        ('[{"data": {}, "annotations": [{"result": [{"value": {"choices": ["a"]}}]}]}]', "neither file, content nor position"),
        ("[1, 2]", "task 1 is no object"),
        ("[{", "no JSON"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, match: str) -> None:
    (tmp_path / "labels").write_text(content)
    with pytest.raises(BadInput, match=match):
        read_labels(tmp_path / "labels")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="no text"):
        read_labels(tmp_path / "labels")
    with pytest.raises(BadInput, match="cannot be read as a labels file"):
        read_labels(tmp_path / "nowhere")


def test_equal_labels_twice_are_one(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("position,label\n1,2\n1,2\n")
    assert read_labels(tmp_path / "labels") == {1: 2}


def test_a_byte_order_mark_and_names_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("\ufeffPosition, Label \n1,2\n", encoding="utf-8")
    assert read_labels(tmp_path / "labels") == {1: 2}


def test_labels_of_another_pool(pool: ArraySource) -> None:
    with pytest.raises(BadInput, match=r"2 of 3 labels are for inputs that are not in the pool .*from another run"):
        placed({0: 1, 99: 1, "ab" * 8: 2}, Inputs(pool.ids()), 3, None)


def test_names_that_are_numbers(pool: ArraySource) -> None:
    """Class names of MNIST are digits; a network may have them in another order."""
    assert placed({0: 7}, Inputs(pool.ids()), 3, ("9", "8", "7"))[0] == 2
    with pytest.raises(BadInput, match="label 5: the target has 3 classes"):
        placed({0: 5}, Inputs(pool.ids()), 3, None)


# -- names


NAMES = ["IMG_1.png", "IMG_2.png", "cat/IMG_3.png", "dog/IMG_3.png", "dog/deep/IMG_1.png"]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("IMG_2.png", 1),
        ("./IMG_2.png", 1),
        ("/home/ann/photos/IMG_2.png", 1),
        ("photos\\IMG_2.png", 1),
        ("cat/IMG_3.png", 2),
        ("photos/dog/IMG_3.png", 3),
        ("deep/IMG_1.png", 4),
        ("IMG_1.png", 0),  # the whole name goes before the end of another's path
        ("/data/local-files/?d=photos/dog/IMG_3.png", 3),
        ("/data/upload/7/0a1b2c3d-IMG_2.png", 1),
        ("http://localhost:8080/data/upload/7/0a1b2c3d-IMG_2.png", 1),
    ],
)
def test_the_file_that_a_person_means(text: str, position: int) -> None:
    assert Inputs(map(str, range(5)), NAMES).find(text) == [position]


def test_names_that_mean_no_file_or_several() -> None:
    inputs = Inputs(map(str, range(5)), NAMES)
    for text in ("IMG_9.png", "bird/IMG_3.png", "MG_1.png", "", "/", "http://[", "/data/upload/7/", "3"):
        assert inputs.find(text) == ([3] if text == "3" else [])  # "3" is a content here
    with pytest.raises(BadInput, match=r"several files are called so \(cat/IMG_3.png and dog/IMG_3.png\)"):
        inputs.find("IMG_3.png")
    assert Inputs(["aa", "bb", "aa"]).find("aa") == [0, 2]
    assert Inputs(["aa"]).find("IMG_1.png") == []


PART = st.sampled_from(["a", "b", "c.png"])


@given(st.lists(st.lists(PART, min_size=1, max_size=4).map("/".join), min_size=1, max_size=8, unique=True), st.data())
def test_a_found_file_ends_as_was_asked(names: list[str], drawn: st.DataObject) -> None:
    """Against a plain search: whatever is found agrees with the text part by part, and nothing agrees in more parts."""
    text = drawn.draw(st.lists(PART, min_size=1, max_size=5).map("/".join))
    agreeing = {}
    for position, name in enumerate(names):
        pairs = list(zip(reversed(PurePosixPath(name).parts), reversed(PurePosixPath(text).parts), strict=False))
        if all(a == b for a, b in pairs):
            agreeing[position] = len(pairs)
    most = [p for p, n in agreeing.items() if n == max(agreeing.values())]
    exact = [p for p, name in enumerate(names) if name == text]
    try:
        found = Inputs(map(str, range(100, 100 + len(names))), names).find(text)
    except BadInput:
        assert len(most) > 1
        assert not exact
    else:
        assert found == (exact or most)


@pytest.mark.parametrize("column", ["file", "name", "filename", "file_name", "path", "image", "File"])
def test_a_table_of_names(tmp_path: Path, column: str) -> None:
    (tmp_path / "labels.csv").write_text(f"{column},label\na.png,cat\nb.png,\n'=c.png,3\n")
    assert read_labels(tmp_path / "labels.csv") == {"a.png": "cat", "=c.png": 3}
    (tmp_path / "labels.tsv").write_text(f"{column}\tclass\na b.png\tcat\n")
    assert read_labels(tmp_path / "labels.tsv") == {"a b.png": "cat"}


def test_what_names_an_input_best_counts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("position,file,content,label\n7,a.png,AB,1\n8,b.png,,2\n9,,,3\n")
    assert read_labels(tmp_path / "a.csv") == {"ab": 1, "b.png": 2, 9: 3}


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text('{"file": "a.png", "label": "cat"}\n\n{"image": "b.png", "label": 2}\n{"file": "c.png", "label": null}\n')
    assert read_labels(file) == {"a.png": "cat", "b.png": 2}
    file.write_text('{"file": "a.png", "label": "cat"}\n{"file": "a.png", "label": "dog"}\n')
    with pytest.raises(BadInput, match=r"line 2 labels input a\.png as 'dog', but line 1 says 'cat'"):
        read_labels(file)
    file.write_text('{"file": "a.png", "label": "cat"}\n[1]\n')
    with pytest.raises(BadInput, match="line 2 is no object"):
        read_labels(file)
    file.write_text('{"file": "a.png", "label": "cat"}\n{"file": \n')
    with pytest.raises(BadInput, match="no JSON"):
        read_labels(file)
    file.write_text('{\n"file": "a.png",\n"label": "cat"\n}\n')  # one object over several lines
    assert read_labels(file) == {"a.png": "cat"}


def test_names_of_classes() -> None:
    names = ("T-shirt/top", "bag", "3")
    assert [numbered(label, 3, names) for label in ("T-shirt/top", "T-shirt_top", "bag", 3, 0, "unclear", "?")] == [
        0, 0, 1, 2, 0, -1, -1,
    ]  # fmt: skip
    with pytest.raises(BadInput, match="Did you mean bag"):
        numbered("bags", 3, names)
    with pytest.raises(BadInput, match="no class of the target"):
        numbered("a_b", 2, ("a/b", "a:b"))  # either could be meant
    odd = ("a", "caf\udce9")  # of a folder whose name is not UTF-8; exports spell it out
    assert [numbered(label, 2, odd) for label in ("caf\udce9", "caf\\udce9")] == [1, 1]


def test_a_folder_per_class(tmp_path: Path) -> None:
    for place in ("cat/a.png", "cat/b.jpg", "dog/00001-3-00000000000000ff-IMG_7.png", "dog/notes.txt", "dog/.DS_Store"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(b"")
    assert read_labels(tmp_path) == {"a.png": "cat", "b.jpg": "cat", "00000000000000ff": "dog"}


def test_a_folder_that_nobody_sorted_is_no_label(tmp_path: Path) -> None:
    picture = tmp_path / "cat" / "00001-3-00000000000000ff.png"
    picture.parent.mkdir()
    picture.write_bytes(b"")
    (tmp_path / "exported.csv").write_text(
        "rank,picture\n1,cat/00001-3-00000000000000ff.png\n2,cat/00002-4-00000000000000fe.png\n"
    )
    with pytest.raises(BadInput, match="nobody sorted it, all 1 images"):
        read_labels(tmp_path)
    assert read_labels(tmp_path, confirmed=True) == {"00000000000000ff": "cat"}
    (tmp_path / "dog").mkdir()
    picture.rename(tmp_path / "dog" / picture.name)
    assert read_labels(tmp_path) == {"00000000000000ff": "dog"}


def test_what_is_no_valid_input_is_a_word_of_its_own() -> None:
    assert [numbered(word, 3, None) for word in ("invalid", "Not valid", "unclear")] == [-2, -2, -1]
    assert numbered("invalid", 2, ("valid", "invalid")) == 1  # a class may be called so
    numbers = placed({0: "invalid", 1: 2, 2: "?"}, Inputs(["a", "b", "c"]), 3, None)
    assert numbers.tolist() == [-1, 2, -1]
