"""What is refused, and in which words; what is borne, and how it is reported."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused
from tests.unit.coverage import subjects
from tests.unit.report.subjects import own_scripts
from typer.testing import CliRunner

from neurotest import registry
from neurotest.cli.app import app
from neurotest.coverage import cover
from neurotest.coverage.adequacy import DSA, LSA, MDSA, MLSA, MMDSA
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.measure.context import Traces
from neurotest.scan import profile


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kmnc:0", "sections=0: expected an integer >= 1"),
        ("kmnc:edges=open", "edges='open': expected closed, neural_coverage or dnn_tip"),
        ("nbc:-1", "scale=-1"),
        ("tknc:0", "k=0"),
        ("tknc:2.5", "k=2.5"),
        ("tknp:mode=all", "mode='all'"),
        ("cc:-1", "threshold=-1"),
        ("nc:scaling=max", "scaling='max'"),
        ("nlc:sometimes", "mode='sometimes'"),
        ("cac:1", "sections=1"),
        ("cac:p=1", "p=1"),
        ("cac:neuron=unit", "neuron='unit'"),
        ("npc:share=0", "share=0"),
        ("npc:member=2", "member=2"),
        ("npc:rule=guess", "rule='guess'"),
        ("dsc:0", "bucket=0"),
        ("dsc:upper=2", "sections and upper go together"),
        ("lsc:buckets=sadl", "sections=1000"),
        ("lsc:bandwidth=0", "bandwidth=0"),
        ("mdsc:inverse=yes", "inverse='yes'"),
        ("mdsc:features=0", "features=0"),
        ("kmnk", "Did you mean kmnc"),
    ],
)
def test_settings_are_refused_when_they_are_made(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        registry.build("criterion", text)
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["kmnc", "nbc", "snac", "lsc", "dsc", "mdsc", "cac", "npc"])
def test_what_needs_training_data_says_so(text: str) -> None:
    with refused("missing", "train"):
        cover(subjects.small(), ArraySource(subjects.images(5, 0)), text)


def test_an_empty_training_set_is_refused() -> None:
    train = ArraySource(subjects.images(5, 0)).take(np.arange(0))
    with refused("empty", "data"):
        cover(subjects.small(), ArraySource(subjects.images(5, 0)), "kmnc", train=train)


def test_a_profile_of_another_target_is_refused() -> None:
    saved = profile(subjects.small(), ArraySource(subjects.images(20, 0)))
    other = subjects.small()
    other.module.fc2.bias.data += 1  # type: ignore[operator, union-attr]
    with refused("changed", "target"):
        cover(other, ArraySource(subjects.images(5, 0)), "kmnc", profile=saved)
    assert cover(subjects.small(), ArraySource(subjects.images(5, 0)), "kmnc:10", profile=saved)["kmnc:10"].profile == 20


def test_a_profile_of_other_layers_is_refused() -> None:
    context = subjects.context_of({"a": [[0.0, 1.0], [1.0, 2.0]]})
    context.profiles[subjects.WANT] = dataclasses.replace(subjects.context_of({"a": [[0.0], [1.0]]}).profiles[subjects.WANT])
    with refused("changed", "profile"):
        registry.build("criterion", "kmnc").start(context)


def test_a_k_larger_than_a_layer_takes_all_of_it_and_says_so() -> None:
    coverage = cover(subjects.small(), ArraySource(subjects.images(5, 0)), "tknc:4")
    assert coverage["tknc:4"].value.layers["conv"].value == 1
    assert any("every neuron of conv (4), fc2 (3)" in note for note in coverage.notes)


def test_dead_neurons_and_constant_layers_are_counted() -> None:
    target = subjects.small()
    target.module.conv.weight.data.zero_()  # type: ignore[operator, union-attr]
    coverage = cover(
        target, ArraySource(subjects.images(9, 0)), ["nc", "kmnc:10", "nlc", "nbc"], train=ArraySource(subjects.images(20, 1))
    )
    assert all(coverage[name].value.dead >= 4 for name in ("nc", "kmnc:10", "nlc"))
    assert coverage["kmnc:10"].value.layers["conv"].covered == 0
    assert all(np.isfinite(coverage[name].value.value) for name in coverage.criteria)


@pytest.mark.parametrize("scorer", [LSA(), MDSA(), DSA(), MLSA(per="class"), MMDSA(), LSA(per="all"), MDSA(per="all")])
def test_a_class_with_fewer_inputs_than_neurons_still_has_a_surprise(scorer: Any) -> None:
    random = np.random.default_rng(0)
    values, classes = random.normal(size=(31, 20)), np.array([0] * 20 + [1] * 10 + [2])
    fitted = scorer.fit(Traces(values, classes))
    scores = fitted.score(random.normal(size=(9, 20)), np.repeat([0, 1, 2], 3))
    assert np.isfinite(scores).all()


def test_a_class_that_training_data_lacks_is_infinitely_surprising_and_told() -> None:
    context = subjects.context_of({"a": [[0.0], [1.0], [4.0]]}, [0, 0, 1])
    state = registry.build("criterion", "dsc").start(context)
    state.update(subjects.trace_of({"a": [[3.0], [0.5]]}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    value = state.value()
    assert value.value == 1
    assert any("infinitely surprising" in note for note in value.notes)


def test_surprise_without_any_spread_or_with_one_class_is_refused() -> None:
    with refused("empty", "min_var"):
        MDSA().fit(Traces(np.ones((5, 3)), np.zeros(5, dtype=np.int64)))
    with refused("too-few", "train"):
        DSA().fit(Traces(np.random.default_rng(0).random((5, 3)), np.zeros(5, dtype=np.int64)))
    with refused("not-finite", "train"):
        LSA().fit(Traces(np.full((5, 3), np.nan), np.zeros(5, dtype=np.int64)))


def test_equal_training_points_of_two_classes_are_infinitely_surprising_not_an_error() -> None:
    fitted = DSA().fit(Traces(np.array([[0.0], [0.0], [1.0]]), np.array([0, 1, 1])))
    assert fitted.score(np.array([[0.5]]), np.array([0])).tolist() == [np.inf]


def test_too_much_memory_is_refused_with_a_way_to_need_less() -> None:
    data, train = ArraySource(subjects.images(5, 0)), ArraySource(subjects.images(20, 1))
    with refused("too-large", "memory") as caught:
        cover(subjects.small(), data, "kmnc:1600000000", train=train)
    assert "--memory 4" in str(caught.value)
    assert cover(subjects.small(), data, "kmnc:1000", train=train, memory=1e5).memory == 16000


@pytest.mark.parametrize(
    ("criteria", "refusal"),
    [([], ("missing", "criteria")), (["nope"], ("unknown-name", "criterion")), ([3], ("wrong-type", "criteria"))],
)
def test_criteria_that_are_none(criteria: list[Any], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        cover(subjects.small(), ArraySource(subjects.images(5, 0)), criteria)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()\n"
    )
    x = subjects.images(30, 2)
    np.savez(tmp_path / "test.npz", x=x, y=np.arange(30) % 3)
    np.savez(tmp_path / "train.npz", x=subjects.images(40, 3))
    return tmp_path


def command(*words: str) -> Any:
    return CliRunner().invoke(app, ["cover", "py:net.py:build", "npz:test.npz#x,y", "--size", "1x8x8", *words])


def test_the_command_keeps_the_json_contract(here: Path) -> None:
    words = ["--train", "npz:train.npz#x", "--criteria", "kmnc:10", "--criteria", "nlc", "--by", "class", "--json", "-q"]
    done = command(*words)
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert {"covered", "total", "value", "dead", "canonical"} <= set(content["criteria"]["kmnc:10"])
    assert content["criteria"]["nlc"]["total"] is None
    assert (content["layers"], content["neuron"], content["inputs"]) == ("pre_activation", "channel", 30)
    assert content["criteria"]["kmnc:10"]["by_class"].keys() == {"0", "1", "2"}
    assert content["criteria"]["kmnc:10"]["growth"][-1] == [30, content["criteria"]["kmnc:10"]["value"]]
    assert content["criteria"]["kmnc:10"]["profile"] == 40
    assert "not how good the tests are" in content["meaning"]
    report = CliRunner().invoke(app, ["report", content["run"]])
    assert report.exit_code == 0, report.output
    page = (Path(content["run"]) / "report.html").read_text()
    assert "not how good the tests are" in page
    assert "<svg" in page
    assert own_scripts(page)


def test_the_command_shows_tables_and_fails_when_asked_to(here: Path) -> None:
    done = command("--criteria", "tknc:1", "--fail-if", "criteria.tknc:1.value<1")
    assert done.exit_code == 1
    assert "per layer" in done.output
    assert "not how good the tests are" in done.output
    assert "never-covered neurons" in done.output


def test_the_profile_is_kept_and_used_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--train", "npz:train.npz#x", "--criteria", "kmnc:10", "--json", "-q"]
    first = json.loads(command(*words).stdout)
    kept = list((here / "cache" / "profiles").glob("*.json"))
    assert len(kept) == 1
    from neurotest.measure import context

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the training data was forwarded again")

    monkeypatch.setattr(context, "scan", never)
    second = json.loads(command(*words).stdout)
    assert second["criteria"] == first["criteria"]
    kept[0].write_text("{}")  # damaged: made again
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setenv("NEUROTEST_CACHE", str(here / "cache"))
    assert json.loads(command(*words).stdout)["criteria"] == first["criteria"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--criteria", "kmnc"], "--train"),
        (["--by", "layer"], "--by"),
        (["--memory", "0"], "--memory"),
        (["--neuron", "map"], "neuron='map'"),
    ],
)
def test_the_command_refuses_in_one_sentence(here: Path, words: list[str], sentence: str) -> None:
    done = command(*words)
    assert isinstance(done.exception, BadInput)
    assert sentence in str(done.exception)
    assert not (here / "neurotest-runs").exists()


def test_several_criteria_of_different_wants_come_from_one_pass() -> None:
    def measure(names: list[str], **settings: Any) -> Any:
        data, train = ArraySource(subjects.images(30, 2)), ArraySource(subjects.images(40, 3))
        return cover(subjects.small(), data, names, train=train, batch=7, **settings)

    alone = {name: measure([name])[name] for name in ("kmnc:10", "npc", "cac:3", "nc")}
    coverage = measure(list(alone), by="class")
    for name, one in alone.items():
        assert coverage[name].value.covered == one.value.covered
    assert coverage.layers == "mixed"


def test_a_cache_that_cannot_be_written_to_is_borne(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "file"))
    coverage = cover(subjects.small(), ArraySource(subjects.images(5, 0)), "kmnc:10", train=ArraySource(subjects.images(20, 1)))
    assert coverage["kmnc:10"].value.covered > 0


def test_files_that_were_skipped_are_told(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        Image.fromarray((255 * subjects.images(1, 0)[0, 0]).astype(np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    coverage = cover(subjects.small(), f"dir:{tmp_path}", "nc")
    assert coverage.inputs == 2
    assert any("broken.png" in note for note in coverage.notes)


@pytest.mark.parametrize("method", [LSA(per="all", min_var=0), MDSA(per="all", min_var=0)])
def test_why_a_covariance_cannot_be_inverted(method: LSA | MDSA) -> None:
    """Few inputs, or neurons that depend on each other although there are inputs enough: two causes, two sentences."""
    random = np.random.default_rng(0)
    few = random.normal(size=(5, 8))
    dependent = random.normal(size=(200, 4))
    dependent = np.concatenate([dependent, dependent[:, :1] - 2 * dependent[:, 1:2]], axis=1)
    for points, cause, other in ((few, "too few training inputs", "linear"), (dependent, "linear combinations", "too few")):
        (note,) = method.fit(Traces(points, np.zeros(len(points), dtype=np.int64))).notes
        assert cause in note
        assert other not in note
    assert method.fit(Traces(random.normal(size=(200, 4)), np.zeros(200, dtype=np.int64))).notes == ()
