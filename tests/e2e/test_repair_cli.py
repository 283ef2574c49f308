"""Repair on the command line: a stranger's network, a run that was moved, weights that are a target, exit codes."""

from __future__ import annotations

import html
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.e2e.stranger import FUZZ, OPTIONS, absolute, project_spec

from neurotest import data

Cli = Callable[..., Any]
BRIEF = ["--protocol", "default:epochs=1", "--repeats", "1", "--attack", "none", "--json", "-q"]


def photographs(project: Path, folder: Path, spec: str) -> str:
    """Class folders of photographs, named as the stranger names classes."""
    classes, source = (project / "classes.txt").read_text().splitlines(), data(spec)
    assert source.labels is not None
    for number, (x, label) in enumerate(zip(source.read(np.arange(len(source))), source.labels, strict=True)):
        place = folder / classes[label] / f"{number:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[0]).save(place)
    return f"dir:{folder}"


def _page(run: str) -> str:
    return html.unescape(Path(run, "report.html").read_text())


def test_a_strangers_network_is_repaired_with_a_run_that_was_moved(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    assert cli(*FUZZ, "--iterations", 60, "--out", "faults", "-q").code == 0
    monkeypatch.chdir(elsewhere)
    shutil.move(project / "faults", "moved")
    train = photographs(project, elsewhere / "train", "zoo:fashion-mnist/train[:150]")
    holdout = photographs(project, elsewhere / "holdout", "zoo:fashion-mnist/test[200:280]")
    network = [project_spec(project), "moved", *absolute(project)]
    data_ = ["--train", train, "--holdout", holdout]
    first = cli("repair", *network, *data_, "--control", "mutated", *BRIEF, "--out", "repaired")
    assert first.code == 0, first.err
    content = json.loads(first.out)
    assert content["plan"]["faults"]["learn"] > 0
    assert 0 <= content["sets"]["clean"]["after"] <= 1
    assert set(content["controls"]) == {"mutated"}
    # The new network is a target with nothing repeated, and says the same of the holdout.
    again = cli("repair", "run:repaired", "moved", *data_, *BRIEF, "--out", "wrong")
    assert (again.code, "not the one" in again.err) == (2, True)  # the faults are those of the old network
    attacked = cli("attack", "run:repaired", holdout, "--attack", "fgsm:eps=0.02", "--out", "attacked", "--json", "-q")
    assert attacked.code == 0, attacked.err
    right = round(content["sets"]["clean"]["after"] * 80)
    assert json.loads(attacked.out)["set_aside"] == 80 - right
    for command in (["report", "repaired"], ["evaluate", "attacked", "--json", "-q"], ["doctor", "run:repaired", "--json"]):
        result = cli(*command)
        assert result.code in (0, 1) if command[0] == "doctor" else result.code == 0, (command, result.err)
    # The next steps of the pages name the network as it is: the old one with its options, the new one as the run of the repair.
    spec, options = project_spec(project), absolute(project)
    page = ["--mean", "0.3", "--std", "0.4", "--size", "1x28x28", "--classes"]  # names of classes: those of the run
    assert shlex.join(["gate", spec, "run:repaired", holdout, *options[:2], *page, "repaired"]) in _page("repaired")
    weights = ["--new-weights", "repaired/weights.safetensors"]
    replaced = cli("gate", spec, spec, holdout, *options, *weights, "--out", "gate", "-q")
    assert replaced.code in (0, 1), replaced.err
    new = ["--weights", str(elsewhere / "repaired" / "weights.safetensors")]
    assert shlex.join(["check", spec, holdout, *new, *page, "gate"]) in _page("gate")
    assert cli("gate", spec, "run:repaired", holdout, *options, "--out", "second", "-q").code == replaced.code
    assert shlex.join(["check", "run:repaired", holdout]) + "<" in _page("second")
    # Leaks are refused, thresholds are kept to.
    leaked = cli("repair", *network, "--train", train, "--holdout", train, *BRIEF)
    assert (leaked.code, "--holdout: 150 of its 150 inputs are also training data" in leaked.err) == (2, True)
    seeds = cli("repair", *network, "--train", train, "--holdout", f"dir:{project / 'photos'}", *BRIEF)
    assert (seeds.code, "seeds of the run" in seeds.err) == (2, True)
    failing = cli("repair", *network, *data_, "--control", "none", *BRIEF, "--out", "f", "--fail-if", "sets.clean.after<1.01")
    assert failing.code == 1
    named = cli("repair", *network, *data_, "--fail-if", "acuracy<1", "--json")
    assert named.code == 2


def test_a_gate_opens_for_the_better_network_only(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    better, worse, images = "zoo:fashion-resnet20", "zoo:fashion-lenet1", "zoo:fashion-mnist/test[:400]"
    assert cli("gate", better, worse, images, "--out", "refused", "-q").code == 1
    assert cli("gate", worse, better, images, "--out", "opened", "-q").code == 0
    assert cli("gate", better, better, images, "--out", "same", "-q").code == 0


RUNS = {
    "attack": ["--attack", "fgsm:eps=0.1", "--batch", "10"],
    "swarm": ["--evaluations", "30", "--controls", "none", "--radius", "0.3"],
    "illuminate": ["--forwards", "200"],
    "select": ["--method", "deepgini", "--budget", "30"],
}


SLOW = [pytest.param(command, marks=pytest.mark.slow) for command in ("swarm", "illuminate")]


@pytest.mark.parametrize("command", ["attack", "select", *SLOW])
def test_runs_of_every_kind_are_repaired_with_training_data_and_without(
    command: str, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's network: what is learned comes from the run, the holdout is counted, weights that only harm are refused."""
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    first = cli(command, "py:models.py:cnn", "dir:photos", *OPTIONS, *RUNS[command], "--out", elsewhere / "run", "-q")
    assert first.code == 0, first.err
    monkeypatch.chdir(elsewhere)
    train = photographs(project, elsewhere / "train", "zoo:fashion-mnist/train[:150]")
    holdout = photographs(project, elsewhere / "holdout", "zoo:fashion-mnist/test[200:280]")
    network = [project_spec(project), "run", *absolute(project), "--holdout", holdout]
    repaired = cli("repair", *network, "--train", train, "--control", "mutated", *BRIEF, "--out", "repaired")
    assert repaired.code == 0, repaired.err
    content = json.loads(repaired.out)
    assert content["plan"]["picks" if command == "select" else "faults"]["learn"] > 0
    assert content["sets"]["clean"]["inputs"] == 80
    assert Path("repaired/weights.safetensors").is_file()
    assert cli("doctor", "run:repaired", "--json").code in (0, 1)
    brief = ["--repeats", "1", "--attack", "none", "--control", "none", "--json", "-q"]
    alone = cli("repair", *network, "--protocol", "interpolated:epochs=1", *brief, "--out", "alone")
    assert alone.code == 0, alone.err
    assert json.loads(alone.out)["plan"]["train"] == 0
    harm = ["--train", train, "--protocol", "static-adv:eps=0.5,epochs=1,rate=1", "--no-regression"]
    refused = cli("repair", *network, *harm, *brief, "--out", "refused")
    assert (refused.code, json.loads(refused.out)["accepted"]) == (1, False)
    assert not Path("refused/weights.safetensors").exists()


def test_what_is_missing_is_named(cli: Cli) -> None:
    result = cli("repair", "zoo:mnist-lenet1")
    assert result.code == 2
    assert "repair needs TARGET, RUN and --holdout DATA, or --resume RUN" in result.err
    other = cli("repair", "zoo:mnist-lenet1", "nowhere", "--holdout", "zoo:mnist/test[:20]")
    assert (other.code, "not a run" in other.err) == (2, True)
    source = cli("doctor", "run:nowhere")
    assert (source.code, "not a run" in source.err) == (2, True)
