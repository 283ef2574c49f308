"""What a user brings becomes a sentence; what only a wrong program does stays what it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import registry
from neurotest.data.labels import read_labels
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.reading import read_json, read_text, reading, reason, user_path
from neurotest.target.load import load


def raising(error: BaseException, module: str, **options: Any) -> None:
    """Raise it inside `reading`, from a line of a module of this name."""
    raiser = eval("lambda error: (_ for _ in ()).throw(error)", {"__name__": module})
    with reading("file", "a table", **options):
        next(raiser(type(error)(*error.args)))


@pytest.mark.parametrize(
    "error", [OSError(5, "broken"), ValueError("x"), EOFError(), RecursionError(), OverflowError(), RuntimeError("y")]
)
@pytest.mark.parametrize("module", ["zipfile", "neurotest.data.npz"])
def test_what_data_cause_is_a_sentence_wherever_it_is_raised(error: Exception, module: str) -> None:
    with refused("unreadable"):
        raising(error, module)


@pytest.mark.parametrize(
    "error", [TypeError(), KeyError("a"), IndexError(), AttributeError(), NameError(), AssertionError(), ZeroDivisionError()]
)
def test_bugs_of_ours_pass_and_those_of_a_decoder_do_not(error: Exception) -> None:
    with pytest.raises(type(error)):
        raising(error, "neurotest.data.npz")
    with refused("unreadable"):
        raising(error, "PIL.PngImagePlugin")


def test_values_of_unknown_types_may_be_taken_apart_but_bugs_still_pass() -> None:
    for error in (TypeError(), KeyError("a"), IndexError(), AttributeError()):
        with pytest.raises(BadInput):
            raising(error, "neurotest.target.profile", untyped=True)
    for bug in (NameError(), AssertionError(), ZeroDivisionError()):
        with pytest.raises(type(bug)):
            raising(bug, "neurotest.target.profile", untyped=True)


def test_interrupts_and_our_own_sentences_pass() -> None:
    with pytest.raises(KeyboardInterrupt), reading("file", "a table"):
        raise KeyboardInterrupt
    with refused("other"), reading("file", "a table"):
        raise BadInput("as it is")
    with refused("too-large", "memory"), reading("file", "a table"):
        raise MemoryError


def test_a_decoders_words_are_one_printable_line() -> None:
    assert reason(ValueError("a\n\x1b[31m b")) == "a \\x1b[31m b"
    assert len(reason(ValueError("x" * 10_000))) < 210
    assert reason(KeyError("a")) == "KeyError: 'a'"
    assert reason(OSError(2, "No such file")) == "No such file"


@pytest.mark.parametrize(
    ("typed", "refusal"),
    [
        ("~nobody-is-called-so/x", ("unknown-name", "user")),
        ("a\0b", ("syntax", "path")),
        ("\ud800", ("syntax", "encoding")),
        ("x" * 300, ("too-large", "path")),
        ("a/" * 3000, ("too-large", "path")),
    ],
)
def test_paths_that_are_none(typed: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        user_path(typed)


def test_texts(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes("\ufeff[1]".encode())
    assert read_text(file, "a list") == "[1]"
    assert read_json(file, "a list") == [1]
    with refused("too-large"):
        read_text(file, "a list", limit=2)
    for content in (b"\xff", b"[" * 100_000, b"", b"\0"):
        file.write_bytes(content)
        with refused("unreadable"):
            read_json(file, "a list")
    os.mkfifo(tmp_path / "pipe")
    with refused("not-a-file"):
        read_text(tmp_path / "pipe", "a list")


# -- the cases that were built by hand


@pytest.mark.parametrize(
    "spec",
    [
        "idx:/",
        "idx:.",
        "npz:~nobody-here/x",
        "dir:~nobody-here",
        "idx:~nobody-here/t",
        "npz:a\0b",
        "dir:\0",
        "idx:a\0/t",
        "\0",
        "npz:\ud800",
        "npz:" + "x" * 300,
        "dir:" + "x/" * 3000,
        "~nobody-here",
        "npz:x[" + "9" * 5000 + ":]",
        "zoo:mnist/nss-pool@" + "9" * 5000,
    ],
)
def test_data_specs(spec: str) -> None:
    with pytest.raises(BadInput):
        data(spec)


@pytest.mark.parametrize(
    "spec", ["pt2:~nobody-here/x", "pt2:a\0b", "py:a\0b:c", "py:~nobody-here/x.py:b", "py:" + "x" * 300 + ".py:b", "\0"]
)
def test_target_specs(spec: str) -> None:
    with pytest.raises(BadInput):
        load(spec)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': [], 'fortran_order': False, 'shape': (2, 2)}",
        "{'descr': '<f4', 'fortran_order': 7, 'shape': 3}",
        "{[]: 1}",
        "-" * 5000,
        "(" * 200,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1e9, 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2)}",
        "\0",
        "{1:2",
    ],
)
def test_npz_headers(tmp_path: Path, header: str) -> None:
    import zipfile

    content = header.encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + bytes(16))
    with refused(("unsupported", "wrong-shape", "damaged"), None):
        data(f"npz:{tmp_path}/a.npz")


@pytest.mark.parametrize(
    "tasks",
    [
        [{"data": {"position": 1}, "annotations": 5}],
        [{"data": {"position": 1}, "annotations": [{"result": 3}]}],
        [{"data": {"position": 1}, "annotations": [{"result": [{"value": {"choices": 7}}]}]}],
        [{"data": {"position": [], "content": {}}, "annotations": [{"result": [{"value": {"choices": ["a"]}}]}]}],
        [{"position": 10**400, "label": "a"}],
        [{"position": 1.5, "label": "a"}],
        [{"position": True, "label": {"a": 1}}],
        [None],
    ],
)
def test_label_json(tmp_path: Path, tasks: Any) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(tasks))
    with refused(("empty", "syntax", "wrong-type"), None):
        read_labels(tmp_path / "labels.json")


def test_deep_json_and_long_fields_and_a_folder_that_names_no_class(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "long.csv").write_text("position,label\n1," + "a" * 140_000 + "\n")
    (tmp_path / "folder" / " ").mkdir(parents=True)
    (tmp_path / "folder" / " " / "00001-3-00000000000000ff.png").touch()
    for name, refusal in (("deep.json", ("unreadable",)), ("long.csv", ("unreadable",)), ("folder", ("unknown-name", "folder"))):
        with refused(*refusal):
            read_labels(tmp_path / name)


@pytest.mark.parametrize(
    "value",
    [
        "[]",
        "{}",
        "{1}",
        "b'x'",
        "...",
        "1j",
        "(1,2)",
        "'a'",
        "10" + "0" * 400,
        "-1e999",
        "nan",
        "9" * 5000,
        "1" + "0" * 30,
        "criterion/kmnc(sections=[])",
    ],
)
@pytest.mark.parametrize(
    "spec",
    [
        "criterion kmnc:{}",
        "selector nss:k={}",
        "attack pgd:eps={}",
        "describer attributes:selective={}",
        "selector ats:threshold={}",
    ],
)
def test_method_specs(spec: str, value: str) -> None:
    kind, text = spec.format(value).split(" ", 1)
    with pytest.raises(BadInput):
        registry.build(kind, text)


@pytest.mark.parametrize(
    "text",
    ["kmnc:" + "(" * 1000, "kmnc:" + "-" * 9000 + "1", "kmnc:\0", "kmnc:" + "x" * 20_000, "kmnc:preset=[]", "kmnc(" + "[" * 50],
)
def test_methods_that_would_break_the_parser(text: str) -> None:
    with pytest.raises(BadInput):
        registry.build("criterion", text)


def test_words_that_look_like_something_else_stay_words() -> None:
    assert registry.build("fitness", "sensitivity:divide=none").divide in (None, "none")
    assert registry.build("guide", "nsgen:target=true").target == "true"
    assert registry.build("attack", "pgd:eps=8/255").eps == pytest.approx(8 / 255)


TOML = {
    "bounds": ["1", '"x"', "[1]", "[0, 1, 2]", "true", "{}", "[[0], 1]", f"[0, {10**400}]"],
    "mean": ['"x"', "true", "{}", '["a"]', f"{10**400}"],
    "std": ["[true]", "1979-05-27"],
    "size": ["3", "1.5", "[1.5]", "{}", "[0]", '"x"', f'"{10**30}x28x28"'],
    "classes": ["3", "[1, 2]", '"\\u0000"', '"~nobody-here/x"'],
    "outputs": ["3", "[]", '"other"'],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in TOML.items() for value in values])
def test_a_toml_of_wrong_types(key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neurotest.cli.settings_file import read_description

    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text(f"[target]\n{key} = {value}\n")
    with pytest.raises(BadInput):
        load("zoo:mnist-lenet1", **read_description())


@pytest.mark.parametrize(
    "content", [b"\xff", b"[target", b"a" * 100, b"[target]\nx=" + b"[" * 5000, b"target = 3", b"[other]", b"\0"]
)
def test_a_toml_that_is_none(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neurotest.cli.settings_file import read_description

    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_bytes(content)
    with refused(("unreadable", "unknown-option"), None):
        read_description()


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 5},
        {"layers": [1]},
        {"want": []},
        {"want": {"x": 1}},
        {"want": {"layers": []}},
        {"fingerprint": 3},
        {"want": {"keep": "map"}},
        {"layers": {"a": {}}},
        {"want": None},
    ],
)
def test_profiles(tmp_path: Path, change: dict[str, Any]) -> None:
    from neurotest.stats.moments import Moments
    from neurotest.target.probe import Want
    from neurotest.target.profile import Profile

    Profile("f", Want(), {"a": Moments(3)}).save(tmp_path / "p")
    about = json.loads((tmp_path / "p.json").read_text())
    (tmp_path / "p.json").write_text(json.dumps({**about, **change}))
    if change == {"layers": {"a": {}}}:  # the numbers of neurons are for people
        assert Profile.load(tmp_path / "p").layers["a"].neurons == 3
        return
    with refused("unreadable"):
        Profile.load(tmp_path / "p")


def test_classes_from_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with refused("unreadable"):
        load("zoo:mnist-lenet1", classes=tmp_path / "c")
    with pytest.raises(BadInput):
        load("zoo:mnist-lenet1", mean=[10**400], std=[1])
    np.testing.assert_array_equal(load("zoo:mnist-lenet1", size="1x28x28").shape, (1, 28, 28))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_a_file_without_a_size_is_read_up_to_the_limit() -> None:
    """The system makes it up as it is read, and says that it is empty."""
    file = Path("/proc/self/status")
    assert "Name:" in read_text(file, "a file")
    with refused("too-large"):
        read_text(file, "a file", limit=10)


def test_a_large_limit_asks_for_no_memory(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("small")
    assert read_text(tmp_path / "small", "a file", limit=1 << 62) == "small"
