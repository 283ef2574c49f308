"""Errors carry their exit code and name what was probably meant."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.errors import CODES, BadInput, Interrupted, NeurotestError, command, near, shell, spelled
from neurotest.jobs.life import Finished
from neurotest.public import UnknownOption
from neurotest.runs.rows import Absent

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "neurotest"
SOURCES = sorted(
    path for folder in (SOURCE, ROOT / "lab" / "src") for path in folder.rglob("*.py") if "BadInput" in path.read_text()
)
# A command to be pasted with a place put into it as it is: `command` and `shell` quote it.
UNQUOTED = re.compile(r"(neurotest (?:[a-z-]+ )+|--resume )\{(?!command|shell)[^}]*\b(path|run|out|target|data)\b[^(}]*\}")


def test_exit_codes_are_those_of_the_command_line_contract() -> None:
    assert (BadInput.exit_code, Interrupted.exit_code, NeurotestError.exit_code) == (2, 3, 4)
    assert issubclass(BadInput, NeurotestError)
    assert issubclass(Interrupted, NeurotestError)


def calls(file: Path) -> Iterator[ast.Call]:
    """Where a file makes errors."""
    kinds = ("BadInput", "Finished", "ForwardError", "Taken", "Missing", "Absent", "UnknownOption")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
            yield node


def test_every_error_has_a_code_of_the_list_an_argument_and_a_sentence() -> None:
    for file in SOURCES:
        for call in calls(file):
            code, *rest = call.args
            assert not isinstance(code, ast.Constant) or code.value in CODES, f"{file}:{call.lineno}"
            assert len(rest) == 2, f"{file}:{call.lineno}: write BadInput(code, argument, sentence)"


def test_every_code_is_used() -> None:
    codes = {ast.unparse(node) for file in SOURCES for call in calls(file) for node in ast.walk(call.args[0])}
    assert {repr(code) for code in CODES} - codes == {"'other'"}


def test_a_sentence_alone_has_a_code() -> None:
    error = BadInput("refused.")
    assert (error.code, error.argument, str(error)) == ("other", "", "refused.")


@pytest.mark.parametrize("kind", [BadInput, Finished, Absent, UnknownOption])
def test_an_error_keeps_its_fields_between_processes(kind: type[BadInput]) -> None:
    error = kind("out-of-range", "k", "k=0: expected more.", value=[0], allowed=(1, 2), next="neurotest list")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error) == {
        "code": "out-of-range", "argument": "k", "value": "[0]", "allowed": ("1", "2"), "next": "neurotest list",
    }  # fmt: skip
    assert str(copy) == str(error) == "k=0: expected more."
    assert vars(error.reworded("other words")) == vars(error)


def test_a_code_that_is_not_in_the_list_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        BadInput("wrong", "k", "k=0: expected more.")


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("deepgin", ["deepgini", "nss", "random"], "Did you mean deepgini?"),
        ("gini", ["deepgini", "nss"], "Did you mean deepgini?"),
        ("GINI", ["deepgini", "nss"], "Did you mean deepgini?"),
        ("xyz", ["deepgini", "nss"], "Known: deepgini, nss."),
        ("", ["b", "a"], "Known: a, b."),
        ("a", [], "There are none."),
    ],
)
def test_near_misses(name: str, names: list[str], expected: str) -> None:
    assert near(name, names) == expected


def test_a_long_list_is_cut() -> None:
    assert near("?", [f"layer{i:02d}" for i in range(30)]).endswith("layer11 and 18 more.")
    assert near("layer", [f"layer{i}" for i in range(9)]).count("layer") == 4


def test_how_many_are_shown() -> None:
    twelve = [f"{letter}0" for letter in "abcdefghijkl"]
    assert near("?", twelve) == f"Known: {', '.join(twelve)}."
    assert near("?", [*twelve, "m0"]) == f"Known: {', '.join(twelve)} and 1 more."
    assert near("layer", [f"layer{i}" for i in range(9)], most=2) == "Did you mean layer8, layer7?"
    assert near("nss", ["nss", "nss"]) == "Did you mean nss?"
    # Close ones first, then those that contain it, together no more than four.
    assert near("conv", ["conv1", "very.long.name.of.conv", "a.longer.name.of.conv", "fc"]) == (
        "Did you mean conv1, a.longer.name.of.conv, very.long.name.of.conv?"
    )
    assert near("conv", ["conv1", *(f"a.very.long.name.{i}.conv" for i in range(9))]).count("conv") == 4


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name))
def test_a_shell_reads_back_every_name(name: bytes) -> None:
    line = shell("printf", "%s", os.fsdecode(name))
    assert line.isprintable()
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout == name


def test_commands_leave_out_what_is_none_and_quote_what_a_shell_would_obey() -> None:
    assert command("select", None, "--resume", Path("a run; reboot")) == "neurotest select --resume 'a run; reboot'"
    assert shell("\ud800").isprintable()  # no byte of any name


def test_text_that_is_not_utf_8_is_spelled_out_wherever_it_stands() -> None:
    assert spelled({"a\udce9": ["b\udcff", ("c", 1, None)]}) == {"a\\udce9": ["b\\udcff", ["c", 1, None]]}


def test_no_command_is_printed_with_a_name_as_it_is() -> None:
    places = [
        f"{file.relative_to(SOURCE)}: {match[0]}"
        for file in SOURCE.rglob("*.py")
        for match in UNQUOTED.finditer(file.read_text())
    ]
    assert places == []
