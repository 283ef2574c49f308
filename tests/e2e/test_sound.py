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
from neurotest.audio import wav
from neurotest.cli.app import app
from neurotest.errors import BadInput
from neurotest.mutate.audio import AudioMutations
from neurotest.runs import codec
from neurotest.runs.store import Run
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
    assert len(set(result["indices"])) == 10
    assert max(result["indices"]) < 40
    assert 0 <= result["fdr"] <= 1
    if method != "random":
        assert result["scores"] == sorted(result["scores"], reverse=True)
        assert len(set(result["scores"])) > 1


def test_doctor_finds_no_problem() -> None:
    result = command("doctor", TARGET, SEEDS)
    assert result["problems"] == 0
    assert result["speed"]["ms_single"] > 0
    assert result["findings"]


def test_coverage_counts_neurons(tmp_path: Path) -> None:
    words = ("--train", TRAIN, "--criteria", "kmnc:10", "--criteria", "nlc", "--out", str(tmp_path / "run"))
    result = command("cover", TARGET, SEEDS, *words)["criteria"]
    assert 0 < result["kmnc:10"]["covered"] < result["kmnc:10"]["total"]
    assert result["kmnc:10"]["total"] % 10 == 0
    assert result["nlc"]["value"] > 0


def test_suspects_are_inputs_of_the_data() -> None:
    result = command("suspects", TARGET, SEEDS)
    assert result["inputs"] == 40
    assert all(0 <= row["position"] < 40 for row in result["suspects"])


def test_describe_draws_spectrograms(tmp_path: Path) -> None:
    result = command("describe", TARGET, SEEDS, "--out", str(tmp_path / "run"))
    assert list((tmp_path / "run").glob("**/*maps*.png"))
    assert result["neurons"] == len(result["descriptions"]) > 0


def test_evaluate_a_campaign(campaign: Path, tmp_path: Path) -> None:
    result = command("evaluate", str(campaign), "--train", TRAIN, "--out", str(tmp_path / "run"))
    (suite,) = result["suites"].values()
    assert suite["random"] is not None
    assert suite["naturalness"]["outside"] is not None
    assert suite["outputs"] >= suite["defects"]["faults"] > 0


OTHER, FEW = "zoo:spoken-melnet2", "zoo:spoken-digits/test[1:7]"


@pytest.mark.parametrize(
    "words",
    [
        ("swarm", TARGET, FEW, "--norm", "snr", "--radius", "15", "--evaluations", "100", "--controls", "none"),
        ("attack", TARGET, FEW, "--attack", "pgd", "--eps", "0.01"),
        ("diff", TARGET, OTHER, "--seeds", FEW, "--method", "deepxplore:free,step=0.005"),
        ("illuminate", TARGET, "zoo:spoken-digits/test[:20]", "--forwards", "150"),
    ],
    ids=lambda words: words[0],
)
def test_stored_faults_of_every_generator_fail_again_bit_for_bit(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "run"
    command(*words, "--out", str(path))
    targets = [neurotest.load(spec) for spec in (TARGET, OTHER)]
    with Run.open(path) as run:
        rows = run.rows("SELECT file, expected, predicted, '{}' FROM mutant WHERE file IS NOT NULL")
        rows += run.rows(
            "SELECT file.path, input.label, input.predicted, input.extra FROM file JOIN input USING (position) "
            "WHERE file.role = 'fault'"
        )
    assert rows
    for name, expected, predicted, extra in rows:
        said = json.loads(extra).get("said", [predicted])  # of both networks that were driven apart
        with wave.open(str(path / name)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(1, 1, -1).astype(np.int16)
        assert (codec.decode(path / name) == samples[0]).all()
        with torch.inference_mode():
            answers = [int(target.logits(target.prepare(samples)).argmax()) for target in targets]
        assert answers[: len(said)] == said
        assert predicted in said
        assert predicted != expected


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of few faults, for what takes a while for each."""
    path = tmp_path_factory.mktemp("sound") / "small"
    seeds = "zoo:spoken-digits/test[3:33:10]"
    command("fuzz", TARGET, seeds, "--forwards", "60", "--seed", "1", "--out", str(path))
    return path


def test_merge_and_shrink(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    command("merge", str(small), str(small), "--out", str(copy))
    shrunk = command("shrink", str(copy))["families"]
    assert shrunk
    target = neurotest.load(TARGET)
    for row in shrunk:
        samples = codec.decode(copy / row["file"])
        assert speech.CLASSES[int(target.logits(target.prepare(samples[None])).argmax())] == row["predicted"]


def test_a_repair_is_judged_on_sounds_nothing_was_trained_on(small: Path, tmp_path: Path) -> None:
    """The numbers are those of the network that was written, counted anew; operators are those of sound, and nobody's twice."""
    few = ("--protocol", "default:epochs=1", "--control", "schedule", "--attack", "fgsm:eps=0.002", "--repeats", "1")
    words = ("--train", TRAIN, "--holdout", "zoo:spoken-digits/test[300:400]", *few, "--out", str(tmp_path / "run"))
    result = command("repair", TARGET, str(small), *words)
    plan, sets = result["plan"], result["sets"]
    assert sorted(plan["trained_with"] + plan["withheld"]) == sorted(AudioMutations().names)
    assert set(result["controls"]) == {"schedule"}
    assert {"clean", "mutated", "unseen-operators", "fgsm-adaptive", "fgsm-transferred"} <= set(sets)
    holdout = neurotest.data("zoo:spoken-digits/test[300:400]")
    for place, number in ((TARGET, "before"), (f"run:{tmp_path / 'run'}", "after")):
        network = neurotest.load(place)
        with torch.inference_mode():
            answers = network.logits(network.prepare(holdout.read(np.arange(100)))).argmax(1).numpy()
        assert sets["clean"][number] == pytest.approx((answers == holdout.labels).mean())
    assert sets["fgsm-adaptive"]["before"] <= sets["clean"]["before"]
    changed = sorted((tmp_path / "run").glob("*/*.wav"))
    assert len(changed) == sum(min(40, sum(map(len, result[kind].values()))) for kind in ("fixed", "broken"))


def test_a_check_of_sound_counts_what_the_network_says(tmp_path: Path) -> None:
    """Accuracy is the network's, the first inputs are those it is least sure of, and what is for pictures alone says so."""
    only = [word for name in ("accuracy", "first", "trigger", "attacks") for word in ("--only", name)]
    words = ("--train", TRAIN, "--time", "20s", *only, "--out", str(tmp_path / "run"))
    examined = command("check", TARGET, "zoo:spoken-digits/test[:60]", *words)["examinations"]
    network, source = neurotest.load(TARGET), neurotest.data("zoo:spoken-digits/test[:60]")
    with torch.inference_mode():
        sure, answers = network.logits(network.prepare(source.read(np.arange(60)))).softmax(1).max(1)
    right = answers.numpy() == source.labels
    assert examined["accuracy"]["accuracy"] == pytest.approx(right.mean())
    low, high = examined["accuracy"]["accuracy_interval"]
    assert low < right.mean() < high
    first = examined["first"]["indices"]
    assert set(first) == set(sure.argsort()[: len(first)].tolist())
    assert examined["first"]["fdr"] == pytest.approx((~right[first]).mean())
    assert "images" in examined["trigger"]["summary"]
    for radius in examined["attacks"].get("radii", []):  # as many as there was time for
        assert radius["attacked"] < radius["noise"]


def test_distances_of_sound_have_both_sides(tmp_path: Path) -> None:
    """The change that was found is one: the estimate lies below it, no input is set aside, and the nearest class is another."""
    words = ("--samples", "8", "--batches", "10", "--no-attacks", "--out", str(tmp_path / "run"))
    result = command("robustness", TARGET, "zoo:spoken-digits/test[:3]", *words)
    assert (result["inputs"], result["set_aside"], result["contradicted"]) == (3, 0, 0)
    assert 0 < result["score"] < result["upper"] <= result["radius"]
    holdout = neurotest.data("zoo:spoken-digits/test[:3]")
    for row in result["rows"]:
        assert row["class"] == speech.CLASSES[int(holdout.labels[row["position"]])] != row["nearest"]
        assert 0 < row["score"] <= row["upper"]


def test_light_is_refused_with_a_way_out(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["diff", TARGET, OTHER, "--seeds", SEEDS, "--out", str(tmp_path / "run")])
    assert isinstance(result.exception, BadInput)
    assert "deepxplore:free" in str(result.exception)


STRANGER = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.a, self.b = nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.Linear(24, 3)

    def forward(self, x):
        s = torch.stft(x[:, 0], 256, 128, window=self.window, return_complex=True).abs()
        s = F.relu(self.a(torch.log(s + 1e-3)[:, None]))
        return self.b(F.adaptive_avg_pool2d(s, (4, 1)).flatten(1))


def build():
    return Net()
"""


def test_a_strangers_network_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder without weights, functional activations, a front end of its own, a folder of files: first command to last."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(STRANGER)
    names: dict[str, Any] = {}
    exec(STRANGER, names)
    torch.manual_seed(0)
    module = names["build"]()
    source = neurotest.data("zoo:spoken-digits/test[:60]")
    samples = source.read(np.arange(60))
    with torch.no_grad():
        x = torch.from_numpy(samples).float() / 32768
        module.b.bias.sub_(module(x).mean(0))
        said = module(x).argmax(1).tolist()
    torch.save(module.state_dict(), "net.pt")
    Path("classes.txt").write_text("low\nmiddle\nhigh\n")
    for number, (one, name) in enumerate(zip(samples, said, strict=True)):
        folder = Path("takes", ("low", "middle", "high")[name])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02}.wav").write_bytes(wav(one, speech.RATE))
    words = ["py:net.py:build", "wav:takes", "--weights", "net.pt", "--size", "1x4800", "--rate", "8000", "--bounds", "-1", "1"]
    words += ["--classes", "classes.txt"]
    assert command("doctor", *words)["accuracy"] == 1
    assert command("cover", *words, "--train", "wav:takes", "--out", "cover")["inputs"] == 60
    assert len(command("select", *words, "--method", "deepgini", "--budget", "6")["indices"]) == 6
    found = command("fuzz", *words, "--forwards", "200", "--out", "campaign")
    assert found["faults"] > 0
    with Run.open("campaign") as run:
        number = run.rows("SELECT number FROM mutant WHERE oracle IS NOT NULL")[0][0]
    assert command("explain", "campaign", str(number), "--train", "wav:takes")["fault"] == number
    checked = command("check", *words, "--only", "attacks", "--out", "check")["examinations"]["attacks"]
    assert checked["radii"][0]["radius"] < 1 / 1000  # by the loudness of the takes, not by steps of pixels
    page = Path("check/report.html").read_text()
    assert "dB below the sound" in page
    assert "--rate 8000" in page
