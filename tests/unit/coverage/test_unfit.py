"""One criterion that does not fit does not keep the others from running; and training labels are the target's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.coverage import subjects
from torch import nn
from typer.testing import CliRunner

from neurotest.cli.app import app
from neurotest.coverage import Context, cover
from neurotest.coverage.threshold import NC, _ThresholdState
from neurotest.data import data
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.target import Target, Trace, load


def linear() -> Target:
    """No activation anywhere, so there are no decision paths."""
    torch.manual_seed(0)
    return Target(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)).eval(), shape=(6,))


def vectors(n: int = 20) -> ArraySource:
    return ArraySource(np.random.default_rng(0).random((n, 6), dtype=np.float32))


def test_the_others_run_and_the_reason_is_kept() -> None:
    result = cover(linear(), vectors(), ["nlc", "npc", "kmnc:10", "nc"], by="class")
    alone = cover(linear(), vectors(), ["nlc", "nc"], by="class")
    assert list(result.criteria) == ["nlc", "nc"]
    assert {name: m.to_dict() for name, m in result.criteria.items()} == {name: m.to_dict() for name, m in alone.criteria.items()}
    assert "kmnc:10 needs training data" in result.errors["kmnc:10"]
    assert result.errors["npc"].startswith("npc: layers='post_activation'")
    assert result.to_dict()["criteria"]["npc"] == {"error": result.errors["npc"]}
    assert {"criterion": "npc", "error": result.errors["npc"]} in result.table()
    assert "needs training data" in result._repr_html_()
    with pytest.raises(BadInput, match="kmnc:10 needs training data"):
        result["kmnc:10"]


@pytest.mark.parametrize(
    ("criteria", "options", "words"),
    [
        ("npc", {}, "npc: layers='post_activation'"),
        ("kmnc:10", {}, "kmnc:10 needs training data"),
        (["npc", "kmnc"], {}, "npc: .* kmnc needs training data"),
        ("cac", {"neuron": "unit", "train": vectors()}, "cac: neuron='unit'"),
        (["nc", "nlc"], {"layers": "conv*"}, r"^layers='conv\*' matches no layer"),  # said once, for all
    ],
)
def test_when_none_is_left_it_is_an_error_that_names_the_criterion(criteria: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        cover(linear(), vectors(), criteria, **options)


def test_a_slip_in_a_name_or_a_setting_is_still_an_error() -> None:
    for slip in ("nlcc", "kmnc:0"):
        with pytest.raises(BadInput):
            cover(linear(), vectors(), ["nlc", slip])


def test_layers_that_one_criterion_cannot_use() -> None:
    result = cover(subjects.small(), ArraySource(subjects.images(9, 0)), ["nc", "cac"], layers="act1", train=train())
    assert list(result.criteria) == ["nc"]
    assert "'act1' is a ReLU" in result.errors["cac"]


@dataclass(frozen=True, kw_only=True)
class Late(NC):
    """Refuses the second batch."""

    def start(self, context: Context) -> _ThresholdState:
        return LateState(self, context.layout(self.want))


class LateState(_ThresholdState):
    def update(self, trace: Trace) -> None:
        if self.seen:
            raise BadInput("enough.")
        super().update(trace)


def test_one_that_refuses_a_later_batch_leaves_the_others_whole() -> None:
    nine = ArraySource(subjects.images(9, 0))
    result = cover(subjects.small(), nine, ["nc", Late(), "nlc"], batch=4, by="class")
    assert list(result.criteria) == ["nc", "nlc"]
    assert list(result.errors.values()) == [f"{Late()!r}: enough."]
    assert result["nc"].to_dict() == cover(subjects.small(), nine, "nc", batch=4, by="class")["nc"].to_dict()


def train() -> ArraySource:
    x = subjects.images(60, 1)
    with torch.inference_mode():
        labels = subjects.small().logits(torch.from_numpy(x)).argmax(1).numpy()
    return ArraySource(x, labels)


def test_training_labels_are_numbered_as_the_target_numbers_its_classes() -> None:
    """Class folders are numbered by name: taken as they are, npc would build paths from what is misclassified."""
    target, straight, tested = load("zoo:fashion-lenet1"), data("zoo:fashion-mnist/train[:500]"), "zoo:fashion-mnist/test[:200]"
    assert straight.labels is not None
    assert target.classes is not None
    by_name = tuple(sorted(target.classes))
    numbers = np.array([by_name.index(target.classes[label]) for label in straight.labels])
    folders = ArraySource(straight.read(np.arange(500)), numbers, classes=by_name, spec="dir:clothes")
    expected = cover(target, tested, "npc", train=straight)["npc"].value
    value = cover(target, tested, "npc", train=folders)["npc"].value
    assert expected.total == 4000  # 100 buckets of four clusters of each of ten classes
    assert (value.covered, value.total) == (expected.covered, expected.total)


def test_the_command_has_a_row_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)).eval()\n"
    )
    np.savez("x.npz", x=vectors().read(np.arange(20)))
    words = ["cover", "py:net.py:build", "npz:x.npz#x", "--criteria", "npc", "--criteria", "nc", "--out", "run", "-q"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    criteria = json.loads(done.stdout)["criteria"]
    assert criteria["nc"]["covered"] > 0
    assert criteria["npc"].keys() == {"error"}
    assert CliRunner().invoke(app, ["report", "run"]).exit_code == 0
    assert "npc did not run: npc: layers=" in Path("run/report.html").read_text()
    shown = CliRunner().invoke(app, [*words[:-2], "again", "-q"])
    assert "did not run because" in shown.output
    alone = CliRunner().invoke(app, [*words[:5], "--out", "none"])
    assert isinstance(alone.exception, BadInput)
    assert not Path("none").exists()
