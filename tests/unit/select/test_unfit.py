"""One method that does not fit does not keep the others from running."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused
from torch import Tensor

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select import compare, select
from neurotest.select.scorer import OutputScorer
from neurotest.target import Target

from .subjects import centred, exact_pool, labels, same_order, target

pytestmark = pytest.mark.plain

POOL = ArraySource(np.random.default_rng(0).random((30, 6), dtype=np.float32), labels(30))


def unfit(network: Target, method: str, **options: object) -> str:
    """The reason why a method does not fit, and that deepgini beside it gives what it gives alone."""
    both = compare(network, POOL, [method, "deepgini", "random"], 5, **options)
    assert list(both) == ["deepgini", "random"]
    assert same_order(both["deepgini"], select(network, POOL, "deepgini", 5))
    assert both.to_dict()["methods"][method] == {"error": both.errors[method]}
    assert both.table()[-1] == {"method": method, "error": both.errors[method]}
    with pytest.raises(BadInput) as alone:
        select(network, POOL, method, 5, **options)
    assert str(alone.value) == both.errors[method]
    with pytest.raises(BadInput):
        both[method]
    return both.errors[method]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("nss", "nss: .*mutations need images"),  # found with the first batch
        ("nss:reference=original", "nss:reference=original: reference='original' needs each candidate's original"),
        ("nss+", "nss+: .*mutations need images"),
        ("mc-dropout", "mc-dropout: .* has no dropout module"),
        ("dsa", "dsa needs training data"),
        ("cam:kmnc:10", "cam:kmnc:10 needs training data"),
        ("neighbours", "neighbours needs labels of some candidates"),
        ("lsa:layer=conv*", "lsa:layer=conv.*matches no layer"),
    ],
)
def test_the_others_run_and_the_reason_names_the_method(method: str, reason: str) -> None:
    assert re.match(re.escape(reason).replace(r"\.\*", ".*"), unfit(centred(), method))


def test_layers_are_for_methods_that_look_at_layers() -> None:
    both = compare(target(), exact_pool(), ["deepgini", "nss"], 5, layers="conv")
    assert list(both) == ["nss"]
    assert both.errors == {"deepgini": "deepgini looks at the outputs only: leave out --layers and --neuron."}
    assert both.to_dict()["method"] == "nss"


@dataclass(frozen=True, kw_only=True)
class Holes(OutputScorer):
    """Has no score for the first input."""

    def score(self, probs: Tensor) -> Tensor:
        scores = probs[:, 0].clone()
        scores[0] = float("nan")
        return scores


def test_one_that_cannot_be_ranked() -> None:
    both = compare(centred(), POOL, [Holes(), "entropy"], 5)
    assert list(both) == ["entropy"]
    assert "gives no score for 1 input" in both.errors["Holes()"]


def test_a_run_keeps_the_reason(tmp_path: Path) -> None:
    both = compare(centred(), POOL, ["nss", "deepgini"], 5, out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        assert [row.name for row in run.methods()] == ["deepgini"]
        assert run["summary"]["methods"]["nss"] == {"error": both.errors["nss"]}
        assert any(note.startswith("nss did not run: ") for note in run["summary"]["methods"]["deepgini"]["notes"])


def test_when_none_fits_nothing_is_left_behind(tmp_path: Path) -> None:
    with refused("unsuitable"):
        compare(centred(), POOL, ["nss", "dsa"], 5, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_slip_in_a_name_is_still_an_error() -> None:
    with refused("unknown-name", "selector"):
        compare(centred(), POOL, ["entropy", "deepgin"], 5)
