"""The frame of a check: parts, resume, ranking, time, hostile names; and each check's own arithmetic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.report.subjects import HOSTILE, inputs, network

import neurotest
import neurotest.check as check_package
from neurotest import registry
from neurotest.check.accuracy import _calibration_error, _calibration_interval
from neurotest.check.base import CheckContext, CheckItem, Clock
from neurotest.check.slices import _fifths, _forecast_errors
from neurotest.check.trigger import _stamped
from neurotest.cli.junit import write_junit
from neurotest.doctor.context import CaptionedImage, Finding
from neurotest.errors import Interrupted
from neurotest.report import write_report
from neurotest.runs.store import Run

FEW = ["accuracy", "labels", "first", "slices"]
DATA = "zoo:mnist/test[:400]"


def finding(**changes: Any) -> Finding:
    about: dict[str, Any] = {"check": "e", "level": "note", "strength": 0.5, "sentence": "s", **changes}
    return Finding(**about)


def test_a_check_survives_being_a_part() -> None:
    picture = CaptionedImage(np.arange(64, dtype=np.uint8).reshape(1, 8, 8), "a picture")
    one = finding(evidence=(("share", 0.5, (0.4, 0.6)), ("count", 3.0, None)), images=(picture,), deeper="neurotest x")
    before = CheckItem("e", "summary", (one, finding(images=(picture, picture))), {"n": 3}, 1.5, True)
    after = CheckItem.read(before.arrays())
    assert after.to_dict() == before.to_dict()
    assert [f.to_dict() for f in after.findings] == [f.to_dict() for f in before.findings]
    assert [len(f.images) for f in after.findings] == [1, 2]
    assert (after.findings[1].images[1].x == picture.x).all()


def test_alarms_come_first_then_the_strongest() -> None:
    parts = [
        CheckItem(
            "a", "", (finding(strength=0.9, sentence="strong note"), finding(level="alarm", strength=0.1, sentence="weak"))
        ),
        CheckItem("b", "", (finding(level="alarm", strength=0.8, sentence="strong"),)),
    ]
    result = neurotest.CheckResult("t", "d", 1, 1, tuple(parts), 0.0)
    assert [f.sentence for f in result.findings] == ["strong", "weak", "strong note"]


def test_names_of_version_0_1_are_still_read() -> None:
    one = finding(advice="do it")
    assert (one.says, one.do, one.examination, one.severity, one.pictures) == ("s", "do it", "e", "note", ())  # type: ignore[attr-defined]
    assert set(registry.entries("examination")) == set(registry.entries("check"))
    assert check_package.Examination is check_package.Check


def test_every_check_can_be_made_and_says_where_it_stands() -> None:
    made = [entry.make() for entry in registry.entries("check").values()]
    assert len({one.order for one in made}) == len(made) == 9
    assert all(one.share > 0 and one.name == name for name, one in zip(registry.entries("check"), made, strict=True))


def interrupted(out: Path, after: int) -> None:
    def stop(done: int, total: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="--resume" if after else "nothing|before"):
        neurotest.check("zoo:mnist-lenet1", DATA, only=FEW, time=3600, out=out, progress=stop)


def plain(result: neurotest.CheckResult) -> Any:
    content = result.to_dict()
    for one in content["examinations"].values():
        one.pop("seconds")
    return {name: value for name, value in content.items() if name not in ("seconds", "run")}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_finished_checks_are_kept(tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = neurotest.check("zoo:mnist-lenet1", DATA, only=FEW, time=3600)
    interrupted(tmp_path / "run", after)
    made: list[str] = []
    for entry in registry.entries("check").values():
        examine = entry.make.examine  # type: ignore[attr-defined]

        def counted(self: Any, subject: CheckContext, clock: Clock, examine: Any = examine) -> CheckItem:
            made.append(self.name)
            return examine(self, subject, clock)

        monkeypatch.setattr(entry.make, "examine", counted)
    result = neurotest.check(resume=tmp_path / "run")
    assert made == ["accuracy", "labels", "first", "slices"][after:]
    assert plain(result) == plain(whole)
    with refused("finished"):
        neurotest.check(resume=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock") == [
        "inputs",
        "run.json",
        "run.sqlite",
    ]


def test_what_is_repeated_on_resume_must_be_the_same(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 1)
    with refused("changed", "time"):
        neurotest.check(resume=tmp_path / "run", time="2m")
    with refused("changed", "data"):
        neurotest.check(data="zoo:mnist/test[1:401]", resume=tmp_path / "run")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    result = neurotest.check(network(), inputs(wrong=6), time=20, skip=["campaign"], out=tmp_path / "run")
    page = write_report(tmp_path / "run").read_text()
    for name in HOSTILE:
        assert name not in page
    assert "&lt;/script&gt;" in page
    write_junit(tmp_path / "x.xml", result)
    assert ElementTree.parse(tmp_path / "x.xml").getroot().findall(".//testcase")
    with Run.open(tmp_path / "run") as run:
        assert run["summary"]["alarms"] == result.alarms


def test_junit_holds_what_xml_cannot_write(tmp_path: Path) -> None:
    examined = CheckItem("e", "a\x00\x1b\ud800b", (finding(level="alarm", sentence="\x08]]>&<"),))
    write_junit(tmp_path / "x.xml", neurotest.CheckResult("t\x01", "d", 1, 1, (examined,), 0.0))
    case = ElementTree.parse(tmp_path / "x.xml").getroot().find(".//failure")
    assert case is not None
    assert case.get("message") == "\ufffd]]>&<"


def test_little_time_uses_fewer_inputs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the network moves."""
    now = 0.0
    clock = SimpleNamespace(perf_counter=lambda: now, monotonic=lambda: now)
    monkeypatch.setattr("neurotest.check.base.time", clock)

    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(784, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal now
            now += 2e-3 * len(x)
            return self.dense(x.flatten(1))  # type: ignore[no-any-return]

    result = neurotest.check(neurotest.Target(Slow().eval(), shape=(1, 28, 28)), "zoo:mnist/test[:3000]", time=2, only=["first"])
    assert result.inputs == 200
    assert result.of == 3000
    assert "200 of 3,000 inputs" in result.notes[0]


# -- arithmetic


def test_calibration_by_hand() -> None:
    confidence, right = np.array([0.6, 0.6, 0.9, 0.9]), np.array([True, False, True, True])
    assert _calibration_error(confidence, right, 2) == pytest.approx((2 * 0.1 + 2 * 0.1) / 4)
    assert _calibration_error(confidence, right, 1) == pytest.approx(0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_a_calibrated_network_is_seldom_called_otherwise(seed: int) -> None:
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.5, 1, 400)
    error = _calibration_interval(confidence, random.random(400) < confidence, 15, seed)
    assert error.low < 0.08
    sure = _calibration_interval(confidence, random.random(400) < confidence - 0.4, 15, seed)
    assert sure.low > 0.15


def test_fifths_hold_every_input_once() -> None:
    values = np.random.default_rng(0).integers(0, 4, 100).astype(float)
    parts = _fifths(values)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    for one in parts:
        for other in parts:
            assert one is other or not set(values[one]) & set(values[other])


def test_confidence_foretells_at_the_best_temperature() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(4000, 3)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) > random.random((4000, 1))).argmax(axis=1)
    wrong = float((logits.argmax(axis=1) != labels).mean())
    assert _forecast_errors(3 * logits, labels).mean() == pytest.approx(wrong, abs=0.02)  # three times too sure


def test_a_patch_is_put_where_it_is_said() -> None:
    x, patch = torch.zeros(2, 1, 5, 6), torch.arange(1.0, 5.0).reshape(1, 2, 2)
    result = _stamped(x, patch, np.array([0, 3]), np.array([4, 1]))
    assert result[0, 0, :2, 4:].tolist() == [[1, 2], [3, 4]]
    assert result[1, 0, 3:5, 1:3].tolist() == [[1, 2], [3, 4]]
    assert result.sum() == 20
    each = _stamped(x, torch.stack([patch, 2 * patch]), np.array([0, 0]), np.array([0, 0]))
    assert each.sum(dim=(1, 2, 3)).tolist() == [10, 20]
