"""Errors carry their exit code and name what was probably meant."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.errors import BadInput, Interrupted, NeurotestError, command, near, shell, spelled

SOURCE = Path(__file__).parents[2] / "src" / "neurotest"
# A command to be pasted with a place put into it as it is: `command` and `shell` quote it.
UNQUOTED = re.compile(r"(neurotest (?:[a-z-]+ )+|--resume )\{(?!command|shell)[^}]*\b(path|run|out|target|data)\b[^(}]*\}")


def test_exit_codes_are_those_of_the_command_line_contract() -> None:
    assert (BadInput.exit_code, Interrupted.exit_code, NeurotestError.exit_code) == (2, 3, 4)
    assert issubclass(BadInput, NeurotestError)
    assert issubclass(Interrupted, NeurotestError)


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
