"""Errors carry their exit code and name what was probably meant."""

from __future__ import annotations

import pytest

from neurotest.errors import BadInput, Interrupted, NeurotestError, near


def test_exit_codes_are_those_of_the_command_line_contract() -> None:
    assert (BadInput.exit_code, Interrupted.exit_code, NeurotestError.exit_code) == (2, 3, 4)
    assert issubclass(BadInput, NeurotestError)
    assert issubclass(Interrupted, NeurotestError)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("deepgin", ["deepgini", "nss", "random"], "Did you mean deepgini?"),
        ("gini", ["deepgini", "nss"], "Did you mean deepgini?"),
        ("GINI", ["deepgini", "nss"], "Did you mean deepgini?"),
        ("xyz", ["deepgini", "nss"], "Known: deepgini, nss."),
        ("", ["b", "a"], "Known: a, b."),
        ("a", [], "There are none."),
    ],
)
def test_near_misses(name: str, known: list[str], expected: str) -> None:
    assert near(name, known) == expected


def test_a_long_list_is_cut() -> None:
    assert near("?", [f"layer{i:02d}" for i in range(30)]).endswith("layer11 and 18 more.")
    assert near("layer", [f"layer{i}" for i in range(9)]).count("layer") == 4
