"""Explaining faults: what stands in it, substitutions by hand, and runs from elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from tests.unit.report.subjects import own_scripts
from torch import nn

from neurotest.campaign import Explanation, Patterns, explain, fuzz
from neurotest.data.source import ArraySource
from neurotest.report.explain import _markdown, _overlay, page, write_explanation
from neurotest.semantics.descriptions import Descriptions, NeuronDescription
from neurotest.semantics.explain import _risk_ratio, substitutions
from neurotest.semantics.guidance import Guidance
from neurotest.target import Target

SETTINGS: dict[str, Any] = {"describe": "class-profile", "critical": "conductance:3"}


def subject() -> tuple[Target, ArraySource]:
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 12), nn.ReLU(), nn.Linear(12, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), classes=["<b>cat</b>", "dog|cow", "cow"])
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 12, 12)).astype(np.uint8)
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        layers[5].bias -= logits.mean(0)  # type: ignore[operator]
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    return target, ArraySource(x, labels)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Target, ArraySource]:
    folder = tmp_path_factory.mktemp("explain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROTEST_CACHE", str(folder / "cache"))
        target, data = subject()
        fuzz(target, data, "random", outputs=120, out=folder / "run", control=False, mutations="rules95:bilateral=false")
    return folder / "run", target, data


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def first_fault(run: Path) -> int:
    from neurotest.campaign import families

    return families(run).families[0].representative.number


def test_the_seed_is_named(tmp_path: Path) -> None:
    target, data = subject()
    data.names = np.array([f"\x1b[1mimage|{i}.png" for i in range(60)], dtype=object)
    fuzz(target, data, "random", outputs=40, out=tmp_path / "run", control=False, mutations="rules95:bilateral=false")
    explanation = explain(tmp_path / "run", first_fault(tmp_path / "run"), target=target, train=data, **SETTINGS)
    assert isinstance(explanation, Explanation)
    position = explanation.seed.partition(" ")[0]
    assert explanation.to_dict()["seed"] == f"{position} \x1b[1mimage|{position}.png"
    assert f"of seed {position} " in _markdown(explanation)
    assert "\x1b" not in _markdown(explanation)


def test_a_fault_beside_its_seed(campaign: tuple[Path, Target, ArraySource]) -> None:
    run, target, data = campaign
    number = first_fault(run)
    explanation = explain(run, number, target=target, train=data, **SETTINGS)
    assert isinstance(explanation, Explanation)
    pair = explanation.pair
    assert [p.layer for p in pair.layers] == ["1", "4"]
    assert pair.predicted[0] == explanation.true != pair.predicted[1]
    assert pair.attributed == explanation.true  # both are read for what the seed is taken for
    assert pair.layers[0].seed.map is not None
    assert pair.layers[0].seed.map.shape == (12, 12)
    assert pair.layers[1].seed.map is None  # a dense layer has no places
    assert pair.layers[0].seed.ranks[0] == 1
    assert pair.tau is None  # a random campaign has no threshold
    assert pair.parts == next((p.layer for p in pair.layers if p.seed.neuron != p.fault.neuron), None)
    content = explanation.to_dict()
    assert content["fault"] == number
    assert {"layer", "same", "seed", "fault", "completeness"} == set(content["layers"][0])
    assert content["layers"][1]["completeness"] == pytest.approx([1, 1], abs=0.1)  # nothing but a dense layer comes after it
    by_file = explain(run, f"faults/fault-{number:06d}.png", target=target, train=data, **SETTINGS)
    assert by_file.to_dict() == content


def test_classes_are_called_what_the_campaign_was_told(campaign: tuple[Path, Target, ArraySource]) -> None:
    run, target, data = campaign
    other = Target(target.module, shape=target.shape, classes=["one", "two", "three"])
    explanation = explain(run, first_fault(run), target=other, train=data, **SETTINGS)
    assert isinstance(explanation, Explanation)
    assert explanation.true in target.classes  # type: ignore[operator]


def test_every_string_is_escaped(campaign: tuple[Path, Target, ArraySource], tmp_path: Path) -> None:
    run, target, data = campaign
    explanation = explain(run, first_fault(run), target=target, train=data, **SETTINGS)
    assert "<b>cat" not in page(explanation)
    assert "&lt;b&gt;cat" in page(explanation) + explanation._repr_html_() or "dog|cow" in page(explanation)
    assert own_scripts(page(explanation))
    assert _markdown(explanation).count("\n| ") >= 3
    pair = dataclasses.replace(
        explanation.pair, predicted=("a|b\n# big", "[x](http://x) ![y](z) *c* `d` \x1b[2J \u202e&amp; ~~e~~")
    )
    text = _markdown(dataclasses.replace(explanation, true="<b>cat</b>\n\n> quote", pair=pair))
    head = text.splitlines()[2]
    assert r"Fault" in head
    assert r"&lt;b\>cat&lt;/b\> \> quote, seen as a\|b \# big" in head
    assert r"\[x\](http://x) \!\[y\](z) \*c\* \`d\` \\x1b\[2J \\u202e&amp;amp; \~\~e\~\~" in head
    for name in ("a.html", "a.md", "a.json"):
        assert write_explanation(explanation, tmp_path / name).stat().st_size > 100
    with refused("out-of-range", "out"):
        write_explanation(explanation, tmp_path / "a.docx")


def test_what_faults_have_in_common(campaign: tuple[Path, Target, ArraySource], tmp_path: Path) -> None:
    run, target, data = campaign
    patterns = explain(run, target=target, train=data, limit=40, **SETTINGS)
    assert isinstance(patterns, Patterns)
    assert 0 < patterns.faults <= 40
    assert 0 < patterns.others <= 40
    for who in ("faults", "others"):
        assert sum(part[who] for part in patterns.parts.values()) == pytest.approx(1)
    assert all(s.lift > 1 and s.low <= s.lift <= s.high for s in patterns.substitutions)
    assert page(patterns)
    assert patterns.save(tmp_path / "x.json").is_file()


def ready() -> Any:
    target, data = subject()
    words = [NeuronDescription("1", i, f"word {i}", 1.0, "x") for i in range(6)]
    bank = Descriptions.of(target, {"1": 6}, words, "x")
    return Guidance(describe=bank, layers="1", tau=0.5, critical="gradient", distance="jaccard").start(target, data)


def test_substitutions_by_hand() -> None:
    before = np.zeros((200, 1), dtype=np.int64)
    after = np.zeros((200, 1), dtype=np.int64)
    faults = np.arange(200) < 100
    after[:40] = 3  # in 40 of 100 faults neuron 3 takes the place of 0
    after[100:110] = 3  # and in 10 of 100 others
    after[40:45] = 2
    after[110:130] = 2  # less often among faults: not listed
    (row,) = substitutions(ready(), before, after, faults)
    assert (row.layer, row.before, row.after, row.faults, row.others) == ("1", 0, 3, 40, 10)
    assert row.words == ("word 0", "word 3")
    assert row.lift == pytest.approx((40.5 / 101) / (10.5 / 101))
    assert row.sure
    assert row.low > 1


def test_the_interval_of_a_risk_ratio_against_scipy() -> None:
    from scipy.stats.contingency import relative_risk

    ratio, low, high = _risk_ratio(40, 1000, 20, 1000)
    theirs = relative_risk(40, 1000, 20, 1000)
    interval = theirs.confidence_interval()
    assert (ratio, low, high) == pytest.approx((theirs.relative_risk, interval.low, interval.high), rel=0.05)
    assert _risk_ratio(3, 10, 0, 10)[1] > 0


def test_a_map_over_an_image() -> None:
    picture = np.full((2, 2, 3), 100, dtype=np.float32)
    shown = _overlay(picture, np.array([[0, 2], [-1, 1]], dtype=np.float32))
    assert shown[0, 0].tolist() == [100, 100, 100]
    assert shown[1, 0].tolist() == [100, 100, 100]  # what is below 0 does not shine
    assert shown[0, 1, 0] > shown[1, 1, 0] > 100


def test_what_cannot_be_explained_is_told(campaign: tuple[Path, Target, ArraySource], tmp_path: Path) -> None:
    run, target, data = campaign
    with refused("not-found", "fault"):
        explain(run, 999999, target=target, train=data)
    with refused("syntax", "fault"):
        explain(run, "the first", target=target, train=data)
    with refused("missing", "train"):
        explain(run, first_fault(run), target=target)
    with refused("out-of-range", "limit"):
        explain(run, target=target, train=data, limit=0)
    with refused("unknown-option", "depht"):
        explain(run, target=target, train=data, depht=3)  # type: ignore[call-arg]
    other = Target(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).eval(), shape=(1, 12, 12))
    with refused("changed", "target"):
        explain(run, first_fault(run), target=other, train=data)


def test_a_run_from_elsewhere_runs_no_code(campaign: tuple[Path, Target, ArraySource], tmp_path: Path) -> None:
    """Its target may be any `py:` file: it is loaded only if this user made the run here, or names the target."""
    import json
    import shutil
    import sqlite3

    run, _, _ = campaign
    sent = tmp_path / "sent"
    shutil.copytree(run, sent)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with sqlite3.connect(sent / "run.sqlite") as database:
        (content,) = database.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
        config = {**json.loads(content), "target": f"py:{trap}:build"}
        database.execute("UPDATE meta SET value = ? WHERE key = 'config'", (json.dumps(config),))
    with refused("untrusted", "target"):
        explain(sent, 1)
    assert not (tmp_path / "ran").exists()
