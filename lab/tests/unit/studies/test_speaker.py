"""The speaker study: its bookkeeping on invented cells, and one small cell of each kind on spoken digits."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import pytest
import torch

from neurotest.audio import read_wav
from neurotest.generate.swarm import Hit
from neurotest_lab.studies import excitable, suites
from neurotest_lab.studies.speaker import cells, published, subjects, tables
from neurotest_lab.studies.speaker.study import LARGE, SMALL, SpeakerStudy


@pytest.fixture(autouse=True)
def nothing_beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    for name in ("NEUROTEST_DATA", "NEUROTEST_MATERIAL"):
        monkeypatch.delenv(name, raising=False)
    subjects.network.cache_clear()


def test_what_the_paper_prints() -> None:
    assert published.errors("speakers-resnet", "deepxplore") == 15716
    assert published.average("speakers-deepspeaker", "excitability-gradient") == 4.25
    assert published.incomplete("speakers-deepspeaker+overfit", "dlfuzz") == 0.8
    assert published.incomplete("spoken-melnet+overfit", "dlfuzz") is None
    assert published.errors("speakers-resnet", "random") is None
    assert len(published.rows()) == 8 + 12


def test_tables_of_invented_cells() -> None:
    one = {"failed": 3, "evaluations": 500.0, "faults": 3, "recognised": 2}
    noise = {"failed": 0, "evaluations": 1000.0}
    done = {"reach/a/0": {"seeds": 5, "swarm": one, "noise": noise}, "reach/a/1": {"seeds": 5, "swarm": one, "noise": noise},
            "errors/a/swarm": {"absent": "why"}}  # fmt: skip
    result = SpeakerStudy().tables("quick", done)
    swarm, silent = result["tables"]["what fails at 30 dB"]
    assert (swarm["failed"], swarm["seeds"], swarm["rate"], swarm["recognised"]) == (6, 10, 0.6, 0.667)
    assert (silent["failed"], silent["recognised"], silent["evaluations per seed"]) == (0, None, 1000)
    assert result["checks"] == {
        "a, swarm, share of seeds": 0.6, "a, still recognised": 0.667, "a, noise, share of seeds": 0.0,
    }  # fmt: skip
    absent = {row["what"]: row["why"] for row in result["tables"]["not rerun"]}
    assert absent["errors/a/swarm"] == "why"
    assert "neurotest data get speakers" in absent["networks for speakers"]
    assert all("zoo train" in absent[name] for name in LARGE)


def test_without_recordings_spoken_digits_are_left() -> None:
    keys = [cell.key for cell in SpeakerStudy().cells("quick")]
    assert keys
    assert all(key.split("/")[1].startswith(SMALL) for key in keys)


def test_seeds_have_odd_numbers_and_are_right() -> None:
    on = subjects.subject(SMALL, 0, 6)
    assert len(on.x) == 6
    assert (on.source.positions % 2 == 1).all()
    assert torch.equal(on.predicted(on.x), on.y)


def test_reach_and_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "EVALUATIONS", 60)
    row = cells.reach(SMALL, 0, 4, ("swarm", "noise", "pgd"))
    assert row["seeds"] == 4
    assert row["swarm"]["evaluations"] <= 60 + 4
    assert row["pgd"]["failed"] >= row["noise"]["failed"]
    on = subjects.subject(SMALL, 0, 2)
    hits = [Hit(row, on.x[row], 0, 0.0, 0, 1) for row in range(2)]
    heard = cells.listened(on, hits)  # unchanged sounds are as well understood as before
    assert heard["faults"] == heard["recognised"] > 0


@pytest.mark.parametrize("method", suites.GENERATORS)
def test_every_generator(method: str) -> None:
    row = cells.errors(SMALL, 0, 2, method, 2)
    assert row["seeds"] == 2
    assert 0 <= row["errors"] <= row["of"]
    if method in (*suites.PAPERS, "swarm", "random", "pgd"):
        assert row["decibels"] is None or row["decibels"] >= subjects.BELOW - 0.01
    assert row["inside"] <= 2


def test_examples_are_files_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "BELOW", 15.0)
    monkeypatch.setattr(cells, "EVALUATIONS", 100)
    rows = tables.examples({SMALL: cells.examples(SMALL, 0, 3)})
    assert rows
    for row in rows:
        samples, rate = read_wav(base64.b64decode(row["result wav"]))
        assert rate == 8000
        target = subjects.network(SMALL)
        predicted = int(target.logits(target.prepare(samples[None])).argmax())
        assert target.classes is not None
        assert target.classes[predicted] == row["heard"] != row["said"]
        assert base64.b64decode(row["change png"]).startswith(b"\x89PNG")


def test_a_network_trained_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(subjects.FAULTY["spoken"], "underfit", {"epochs": 1, "batch": 20, "images": 60})
    row = cells.faulty(f"{SMALL}+underfit", 0, 2, "random", 2)
    assert row["about"]["accuracy"] < 0.9
    assert row["errors"] <= row["seeds"]


@pytest.mark.slow
def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Louder than in the study, so that few seeds have faults; its tables by network."""
    monkeypatch.setattr(cells, "BALL", dataclasses.replace(subjects.BALL, radius=15.0))
    excited = cells.excited(SMALL, 0, 4, 1)
    assert 1 <= excited["pairs"] <= 4
    assert {row["kind"] for row in excitable.excited_rows({SMALL: excited})} == {"corner", "benign"}
    course = cells.course(SMALL, 0, 2, 3)
    assert excitable.course_rows({SMALL: course})
    sweep = tables.sweep({SMALL: cells.sweep(SMALL, 0, 2, 3)})
    assert [row["value"] for row in sweep] == [*cells.LAMBDAS, "random", "fixed"]
    assert all(0 <= row["failed"] <= row["seeds"] == 2 for row in sweep)
