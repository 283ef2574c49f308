"""Errors carry their exit code and name what was probably meant."""

from __future__ import annotations

import pytest

from neurotest.errors import BadInput, Interrupted, NeurotestError, near


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
