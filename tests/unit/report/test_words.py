"""First sentences of pages: what they say where something is better, worse, within chance or unfinished, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neurotest import Run
from neurotest.check.base import CheckItem, CheckResult
from neurotest.report import campaign, check, repair, write_report
from neurotest.report.campaign import _believed
from neurotest.report.check import _worse
from neurotest.report.coverage import _meanings, _trend
from neurotest.report.evaluation import _conclusion, _overview
from neurotest.report.section import joined, plural


def test_counts_and_lists() -> None:
    assert [plural(n, "seed") for n in (0, 1, 2000)] == ["0 seeds", "1 seed", "2,000 seeds"]
    assert plural(2, "family", "families") == "2 families"
    assert [joined(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def beside(**gains: list[float]) -> dict[str, Any]:
    return {name: {"after": 0.5, "gain_interval": interval} for name, interval in gains.items()}


def test_a_repair_says_where_it_beats_its_controls() -> None:
    summary = {
        "sets": {"clean": {}, "mutated": {}, "pgd": {}},
        "controls": {
            "one": beside(clean=[0.1, 0.2], mutated=[-0.1, 0.1], pgd=[0.1, 0.2]),
            "two": beside(clean=[0.1, 0.2], mutated=[0.1, 0.2], pgd=[-0.2, -0.1]),
        },
    }
    assert repair._compared(summary) == {"better": ["clean"], "open": ["mutated"], "worse": ["pgd"]}
    assert repair._beside(summary) == (
        " It beats every control on 1 of 3 sets; control two is better on 1 (pgd); on 1 it is not clearly better than the best "
        "control."
    )
    assert repair._beside({**summary, "controls": {}}) == ""


def test_a_swarm_says_what_is_within_chance() -> None:
    controls = {
        "noise": {"failed": 0, "rate_interval": [0.0, 0.1]},
        "pgd": {"failed": 17, "rate_interval": [0.4, 0.7]},
    }
    assert campaign._beside_controls({"rate_interval": [0.4, 0.8], "controls": controls}) == (
        " Of the same seeds 0 fail with random noise of equal norm and 17 with PGD of equal norm (gradients). The difference "
        "from PGD of equal norm (gradients) is within chance (the 95 % intervals overlap)."
    )
    assert campaign._beside_controls({"rate_interval": [0.4, 0.8], "controls": {}}) == ""


def test_a_check_that_was_not_finished_says_so() -> None:
    examined = (CheckItem("accuracy", "good"), CheckItem("trigger", "some", ran_out=True), CheckItem("labels", "", skipped=True))
    verdict = CheckResult("t", "d", 1, 1, examined, 1.0).verdict
    assert verdict == (
        "no alarm in 2 checks; not checked: labels; the time was too short to finish the search for learned patches "
        "(trigger): no alarm there says little"
    )


@pytest.mark.parametrize(
    ("alarms", "ran_out", "tone"), [(1, False, "verdict bad"), (0, True, "verdict"), (0, False, "verdict good")]
)
def test_only_a_finished_check_without_alarm_is_green(tmp_path: Path, alarms: int, ran_out: bool, tone: str) -> None:
    row = {"summary": "s", "seconds": 1.0, "ran_out": ran_out, "skipped": False}
    with Run.create(tmp_path / "run", "check", {"target": "t", "fingerprint": "0" * 16, "data": "d", "train": None}) as run:
        summary = {"verdict": "v", "alarms": alarms, "findings": [], "target": "t", "examinations": {"accuracy": row}}
        run.finish({**summary, "inputs": 1, "of": 1, "seconds": 1.0, "accuracy": None})
    assert f'<p class="{tone}">' in write_report(tmp_path / "run").read_text()


def test_faults_that_may_not_be_valid_are_in_the_first_sentence() -> None:
    assert _believed({"believed_valid": {"share": 0.73, "interval": [0.5, 0.98]}}) == (
        " About 73 % (50 .. 98) of the faults still look like their class."
    )
    assert _believed({"believed_valid": {"share": 0.95, "interval": [0.9, 0.98]}}) == ""
    assert "cannot be told" in _believed({"believed_valid": {"share": None, "interval": None}})


def test_criteria_are_explained_with_their_settings() -> None:
    ((name, text),) = _meanings({"kmnc:100": {"canonical": "kmnc(sections=100)"}})
    assert name == "kmnc:100"
    assert text.startswith("Share of the 100 equal parts")


def test_two_points_show_no_trend() -> None:
    assert _trend({"growth": [[1, 0.5], [2, 0.9]]}) == ""
    assert _trend({"growth": [[n, 0.1 * n] for n in range(1, 6)]}) == " (still rising)"
    assert _trend({"growth": [[n, 0.5] for n in range(1, 6)]}) == " (flat)"


def test_an_evaluation_is_a_measurement_beside_random() -> None:
    row = {"suite": "s", "part": "defects", "metric": "seeds_failed", "value": 0.5, "interval": [0.4, 0.6]}
    for random, beside in ((0.3, ", 30 % with random changes at equal cost."), (None, " have a fault.")):
        conclusion = _conclusion([{**row, "random": random}], {"s": {}})
        assert conclusion is not None
        assert conclusion.sentence.endswith(beside)
        assert not conclusion.bad
        assert conclusion.steps[0][1] == "neurotest report s"


def test_a_gate_names_the_classes_that_became_worse() -> None:
    rows = [
        {"name": "cat", "old": 0.9, "new": 0.8, "difference_interval": [-0.2, 0.01]},
        {"name": "dog", "old": 0.9, "new": 0.5, "difference_interval": [-0.5, -0.3]},
        {"name": "eel", "old": 0.5, "new": 0.6, "difference_interval": [-0.1, 0.3]},
    ]
    assert _worse(rows) == " Worse than before, beyond chance: dog (-40.0 points). 1 class is lower within chance."
    assert _worse(rows[:1]) == " 1 class is lower within chance."
    assert _worse(rows[2:]) == _worse(None) == ""


def test_a_swarm_that_a_control_beats_says_so() -> None:
    controls = {"pgd": {"failed": 17, "rate_interval": [0.7, 0.9]}}
    sentence = campaign._beside_controls({"rate_interval": [0.1, 0.3], "controls": controls})
    assert sentence.endswith(" This search is weaker here than PGD of equal norm (gradients).")


def test_a_check_without_alarm_names_its_first_weakness() -> None:
    summary: dict[str, Any] = {"verdict": "no alarm in 2 checks", "alarms": 0, "accuracy": 0.9, "examinations": {}}
    weak = [{"severity": "note", "sentence": "shirts are mistaken."}, {"severity": "note", "sentence": "7 neurons are dead"}]
    sentence = "No alarm in 2 checks. 90.0 % of the labelled inputs are answered right."
    assert check._sentence({**summary, "findings": weak}) == f"{sentence} 2 weaknesses below; the first: shirts are mistaken."
    assert check._sentence({**summary, "findings": []}) == sentence
    alarm = {"severity": "alarm", "sentence": "a patch is a sign of a class"}
    assert check._sentence({**summary, "alarms": 1, "findings": [alarm, weak[0]]}) == f"{sentence} 1 weakness below."


def test_shares_are_drawn_on_the_whole_scale() -> None:
    row = {"suite": "s", "part": "naturalness", "metric": "ssim", "value": 0.29, "interval": None, "random": None, "clean": None}
    (panel,) = _overview([row])["concat"]
    assert panel["layer"][0]["encoding"]["x"]["scale"] == {"domain": [0, 1]}
    (panel,) = _overview([{**row, "metric": "feature_distance"}])["concat"]
    assert "scale" not in panel["layer"][0]["encoding"]["x"]
