"""Every command on sound: the zoo's spoken digits, and files of a folder."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import neurotest
from neurotest.cli.app import app
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.sounds import wav
from neurotest.zoo import speech

TARGET, SEEDS, TRAIN = "zoo:spoken-melnet", "zoo:spoken-digits/test[:40]", "zoo:spoken-digits/train[:300]"


def command(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "campaign"
    result = command("fuzz", TARGET, SEEDS, "--forwards", "400", "--seed", "1", "--out", str(path))
    assert result["faults"] > 0
    return path


def test_faults_are_wav_files_that_fail_again_bit_for_bit(campaign: Path) -> None:
    target = neurotest.load(TARGET)
    files = sorted((campaign / "faults").glob("*.wav"))
    assert files
    with Run.open(campaign) as run:
        rows = run.rows("SELECT file, expected, predicted FROM mutant WHERE file IS NOT NULL")
        assert run.rate == speech.RATE
    for name, expected, predicted in rows:
        with wave.open(str(campaign / name)) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 8000)
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(1, 1, -1)
        assert (codec.decode(campaign / name) == samples[0]).all()
        with torch.inference_mode():
            answer = int(target.logits(target.prepare(samples.astype(np.int16))).argmax())
        assert answer == predicted != expected
    replayed = command("replay", str(files[0]))
    assert replayed["same_values"]
    assert replayed["fails"]


def test_the_rules_of_sound_are_chosen_by_themselves(campaign: Path) -> None:
    with Run.open(campaign) as run:
        options = run["config"]["options"]
        operators = {name for (name,) in run.rows("SELECT DISTINCT operator FROM mutant")}
    assert str(options["mutations"]).startswith("audio")
    assert str(options["validity"]).startswith("audible")
    assert operators <= set(neurotest.registry.build("mutation", "audio").names)


def test_the_report_plays_seed_and_fault(campaign: Path) -> None:
    page = (campaign / "report.html").read_text()
    players = re.findall(r'<audio controls preload="none" src="data:audio/wav;base64,', page)
    assert len(players) >= 2
    assert "media-src data:" in page
    assert "difference in decibels" in page
    assert len(page) < 15_000_000


def test_explain_shows_time_and_band(campaign: Path) -> None:
    with Run.open(campaign) as run:
        fault = run.rows("SELECT number FROM mutant WHERE file IS NOT NULL LIMIT 1")[0][0]
    page = campaign.parent / "why.html"
    command("explain", str(campaign), str(fault), "--train", TRAIN, "--out", str(page))
    content = page.read_text()
    assert "<audio" in content
    assert "where neuron" in content
    assert content.count("data:image/png") >= 4  # seed, fault, and maps over both
    assert "no map" not in content.split("dense")[0]


def test_files_of_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    x, y = speech.load("test", 20)
    for i in range(20):
        place = tmp_path / "takes" / speech.CLASSES[y[i]]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:02d}.wav").write_bytes(wav(x[i], 8000))
    zoo = command("select", TARGET, "zoo:spoken-digits/test[:20]", "--method", "deepgini", "--budget", "5")
    ours = command(
        "select", TARGET, f"wav:{tmp_path}/takes", "--method", "deepgini", "--budget", "5", "--out", str(tmp_path / "run")
    )
    assert sorted(zoo["scores"]) == pytest.approx(sorted(ours["scores"]), abs=1e-6)
    assert len(list((tmp_path / "run" / "inputs").glob("picked-*.wav"))) == 5
    assert "<audio" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("method", ["nss", "nss+", "adaptive", "lsa", "random"])
def test_selectors(method: str) -> None:
    result = command("select", TARGET, SEEDS, "--method", method, "--budget", "10", "--train", TRAIN)
    assert len(result["indices"]) == 10


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", TARGET, SEEDS),
        ("cover", TARGET, SEEDS, "--train", TRAIN, "--criteria", "kmnc:10", "--criteria", "nlc"),
        ("attack", TARGET, "zoo:spoken-digits/test[:6]", "--attack", "pgd", "--eps", "0.001"),
        ("swarm", TARGET, "zoo:spoken-digits/test[:2]", "--norm", "snr", "--radius", "20", "--evaluations", "40"),
        ("suspects", TARGET, SEEDS),
    ],
    ids=lambda words: words[0],
)
def test_commands(words: tuple[str, ...], tmp_path: Path) -> None:
    out = () if words[0] in ("doctor", "suspects") else ("--out", str(tmp_path / "run"))
    assert command(*words, *out)


def test_describe_draws_spectrograms(tmp_path: Path) -> None:
    command("describe", TARGET, SEEDS, "--out", str(tmp_path / "run"))
    assert list((tmp_path / "run").glob("**/*maps*.png"))


def test_evaluate_a_campaign(campaign: Path, tmp_path: Path) -> None:
    assert command("evaluate", str(campaign), "--train", TRAIN, "--out", str(tmp_path / "run"))
