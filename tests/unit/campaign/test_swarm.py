"""`neurotest.swarm` and `neurons` as campaigns: runs, resume, families, replay, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused
from tests.unit.report.subjects import own_scripts
from torch import nn

import neurotest
from neurotest.campaign import families, merge, replay, shrink, status
from neurotest.campaign import swarm as module_swarm
from neurotest.campaign.neurons import neurons
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.store import Store
from neurotest.cli.neurons import keep
from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted
from neurotest.report import write_report
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.target import Target


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def target() -> Target:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 3))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(3)  # so that answers depend on the input
    return Target(module.eval(), shape=(1, 8, 8))


def source(n: int = 24, labelled: bool = True) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 8, 8)).astype(np.uint8)
    with torch.inference_mode():
        y = target().logits(torch.from_numpy(x).float() / 255).argmax(1).numpy()
    return ArraySource(x, y if labelled else None)


OPTIONS = {"evaluations": 80, "radius": 0.05, "batch": 40}  # groups of ten seeds


def test_a_run_holds_faults_that_replay(tmp_path: Path) -> None:
    result = neurotest.swarm(target(), source(), out=tmp_path / "run", **OPTIONS)
    content = json.loads(json.dumps(result.to_dict()))
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= content.keys()
    assert content["faults"] == len(result.x) >= content["roots"] == len(set(result.rows.tolist())) > 0
    assert set(content["controls"]) == {"noise", "pgd", "margin"}
    assert sum(content["by_predicted"].values()) == content["faults"]
    assert sum(row["faults"] for row in families(tmp_path / "run").table()) == result.faults
    again = replay(f"{tmp_path / 'run'}#0", target())
    assert again.same_values
    assert again.fails
    assert status(tmp_path / "run")["faults"] == result.faults
    assert len(list((tmp_path / "run" / "faults").glob("fault-*.png"))) == result.faults
    assert "seeds fail" in result._repr_html_()


def test_a_changed_image_does_not_replay(tmp_path: Path) -> None:
    neurotest.swarm(target(), source(), out=tmp_path / "run", beside=(), **OPTIONS)
    with Run.open(tmp_path / "run") as run:
        first = Store(run).faults()[0]
    assert first.file is not None
    from PIL import Image

    image = np.array(Image.open(first.file.path))
    Image.fromarray(255 - image).save(first.file.path)
    assert not replay(first.file.path, target()).same_values


def test_interrupted_or_killed_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    every: list[int] = []
    whole = neurotest.swarm(target(), source(), out=tmp_path / "whole", stop=lambda: bool(every.append(1)), **OPTIONS)  # type: ignore[func-returns-value]
    rounds: list[int] = []

    def stop() -> bool:
        rounds.append(1)
        return len(rounds) > len(every) // 2  # in the second group of three

    with pytest.raises(Interrupted, match="--resume"):
        neurotest.swarm(target(), source(), out=tmp_path / "part", stop=stop, **OPTIONS)
    with Run.open(tmp_path / "part") as run:
        assert 0 < run["swarm"]["done"] < len(source())
    resumed = neurotest.swarm(target(), source(), resume=tmp_path / "part")
    same = ("faults", "families", "roots", "by_predicted", "forwards", "controls", "labels_per_seed", "errors")
    assert {key: resumed.to_dict()[key] for key in same} == {key: whole.to_dict()[key] for key in same}
    assert np.array_equal(resumed.x, whole.x)


def test_unlabelled_seeds_keep_their_prediction_if_asked(tmp_path: Path) -> None:
    with refused("no-labels", "seeds"):
        neurotest.swarm(target(), source(labelled=False), out=False)
    offered = neurotest.swarm(target(), source(labelled=False), labels_from="prediction", out=False, beside=(), **OPTIONS)
    labelled = neurotest.swarm(target(), source(), out=False, beside=(), **OPTIONS)
    assert offered.faults == labelled.faults > 0
    free = neurotest.swarm(target(), source(labelled=False), "sensitivity", out=False, beside=(), **OPTIONS)  # needs no labels
    assert free.seeds == 24


def test_presets_run(tmp_path: Path) -> None:
    for preset in ("sensitivity-paper", "sensitivity-code", "excitability-gradient"):
        result = neurotest.swarm(target(), source(6), preset=preset, particles=4, iterations=3, beside=(), out=False)
        assert result.fitness == preset.partition("-")[0]
        assert result.to_dict()["forwards"] > 0


def test_settings_repeated_on_resume_are_compared(tmp_path: Path) -> None:
    options = {**OPTIONS, "inertia": (0.4, 0.9)}
    result = neurotest.swarm(target(), source(6), out=tmp_path / "run", **options)
    again = neurotest.swarm(target(), source(6), "excitability", resume=tmp_path / "run", **options)
    assert again.faults == result.faults
    for repeated in ({"radius": 0.01}, {"fitness": "margin"}, {"beside": ("pgd",)}, {"inertia": (0.4, 0.8)}):
        with refused("changed", next(iter(repeated))):
            neurotest.swarm(target(), source(6), resume=tmp_path / "run", **repeated)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"radius": 0}, ("out-of-range", "radius")),
        ({"radius": 2}, ("out-of-range", "radius")),
        ({"radius": 0.001}, ("out-of-range", "radius")),
        ({"norm": "l2", "radius": 99.0}, ("out-of-range", "radius")),
        ({"particles": 0}, ("out-of-range", "particles")),
        ({"layers": "nothere"}, ("unknown-name", "layers")),
        ({"fitness": "coverage"}, ("unknown-name", "fitness")),
        ({"preset": "paper"}, ("unknown-name", "preset")),
        ({"beside": ("cw",)}, ("unknown-name", "beside")),
        ({"particle": 3}, ("unknown-option", "particle")),
        ({"labels_from": "guess"}, ("out-of-range", "labels_from")),
    ],
)
def test_bad_input_is_one_sentence(options: dict[str, object], refusal: tuple[str, str], tmp_path: Path) -> None:
    with refused(*refusal):
        neurotest.swarm(target(), source(6), out=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "faults").exists()


def test_no_correct_seed_and_no_target_are_said() -> None:
    wrong = source(6)
    assert wrong.labels is not None
    wrong.labels = (wrong.labels + 1) % 3
    with refused("empty", "seeds"):
        neurotest.swarm(target(), wrong, out=False)
    with refused("missing", "target"):
        module_swarm()


def test_neurons_of_a_run(tmp_path: Path) -> None:
    neurotest.swarm(target(), source(), out=tmp_path / "run", beside=(), **OPTIONS)
    result = neurons(tmp_path / "run", target(), top=4, rounds=20)
    assert len(result.neurons) == 4
    assert [n.value for n in result.neurons] == sorted((n.value for n in result.neurons), reverse=True)
    assert all(n.low <= n.value <= n.high and 0 <= n.seeds <= result.pairs for n in result.neurons)
    assert sum(row["excitable"] for row in result.layers) == 4
    assert sum(row["value"] for row in result.layers) == pytest.approx(result.change, rel=0.5)
    # what silencing does is what an edited network says
    first = result.neurons[0]
    assert 0 <= first.repaired <= result.pairs
    assert json.loads(json.dumps(result.to_dict()))["pairs"] == result.pairs
    again = neurons(tmp_path / "run", target(), top=4, rounds=20)
    assert again.table() == result.table()
    assert "4 most excitable neurons" in result._repr_html_()


def test_the_report_shows_controls_families_and_neurons(tmp_path: Path) -> None:
    result = neurotest.swarm(target(), source(), out=tmp_path / "run", **OPTIONS)
    keep(tmp_path / "run", neurons(tmp_path / "run", target(), top=3, rounds=4).to_dict())
    page = write_report(tmp_path / "run").read_text()
    assert f"{result.failed} of {result.seeds} seeds fail" in page
    assert "a swarm led by the margin alone" in page
    assert "faults right again when silenced" in page
    assert page.count("data:image/png") >= 2
    assert own_scripts(page)


def test_shrinking_changes_fewer_values_by_less_and_the_same_class_is_said(tmp_path: Path) -> None:
    neurotest.swarm(target(), source(), out=tmp_path / "run", beside=(), **OPTIONS)
    with Run.open(tmp_path / "run") as run:
        before = {fault.number: fault for fault in Store(run).faults()}
        seeds, places = Store(run).seeds()
    rows = shrink(tmp_path / "run", target())["families"]
    assert len(rows) == len(families(tmp_path / "run").families)
    smaller = 0
    for row in rows:
        fault = before[row["fault"]]
        image = codec.decode(tmp_path / "run" / row["file"])
        seed = seeds[places[fault.root]]
        with torch.inference_mode():
            predicted = int(target().logits(torch.from_numpy(image[None].astype(np.float32) / 255)).argmax(1))
        assert predicted == fault.predicted
        assert row["after"] == f"{fault.operator}, changed values {int((image != seed).sum())}"
        assert row["l0_after"] == pytest.approx(float((image != seed).mean()))
        assert row["l2_after"] <= row["l2_before"] + 1e-6
        smaller += row["l0_after"] < row["l0_before"]
        # nothing is left that could go: every changed value is needed
        kept = np.argwhere(image != seed)
        without = np.repeat(image[None], len(kept), axis=0)
        without[(np.arange(len(kept)), *kept.T)] = seed[tuple(kept.T)]
        with torch.inference_mode():
            again = target().logits(torch.from_numpy(without.astype(np.float32) / 255)).argmax(1)
        assert len(kept) == 1 or bool((again != fault.predicted).all()) or row["linf_after"] < row["linf_before"]
    assert smaller > 0
    with Run.open(tmp_path / "run") as run:
        assert len(shrunk_of(run)) == len(rows)


def test_swarms_merge_with_each_other_and_with_campaigns(tmp_path: Path) -> None:
    first = neurotest.swarm(target(), source(), out=tmp_path / "a", beside=(), **OPTIONS)
    second = neurotest.swarm(target(), source(), "margin", out=tmp_path / "b", beside=(), **OPTIONS)
    neurotest.fuzz(target(), source(), "random", seed=1, iterations=60, batch=8, mutations="rules95", out=tmp_path / "c")
    both = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    assert both["faults"] == first.faults + second.faults
    assert both["forwards"] == first.to_dict()["forwards"] + second.to_dict()["forwards"]
    assert all(replay(f"{tmp_path / 'both'}#{i}", target()).fails for i in range(both["faults"]))
    assert len(shrink(tmp_path / "both", target())["families"]) == both["families"]
    every = merge([tmp_path / "both", tmp_path / "c"], tmp_path / "every")
    assert every["faults"] >= both["faults"]
    for fault in families(tmp_path / "every").families:
        again = replay(f"{tmp_path / 'every'}#{fault.representative.number}", target())
        assert again.same_values
        assert again.fails
    assert write_report(tmp_path / "every").is_file()
    other = Target(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), shape=(1, 8, 8))
    neurotest.swarm(other, source(labelled=False), labels_from="prediction", out=tmp_path / "d", beside=(), **OPTIONS)
    with refused("changed", "target"):
        merge([tmp_path / "a", tmp_path / "d"], tmp_path / "no")


def test_what_left_a_predicted_label_shrinks_too(tmp_path: Path) -> None:
    neurotest.swarm(target(), source(labelled=False), labels_from="prediction", out=tmp_path / "run", beside=(), **OPTIONS)
    rows = shrink(tmp_path / "run", target())["families"]
    assert any(row["l0_after"] < row["l0_before"] for row in rows)
    with refused("wrong-run"):
        neurotest.fuzz(target(), resume=tmp_path / "run")


def test_neurons_without_faults_are_said(tmp_path: Path) -> None:
    neurotest.swarm(target(), source(4), out=tmp_path / "run", beside=(), evaluations=4, particles=1, radius=0.004)
    with refused("empty", "pairs"):
        neurons(tmp_path / "run", target())
