"""What the methods of a run from elsewhere name is not opened, however it is spelled: neither code nor files."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import neurotest
from neurotest import registry
from neurotest.campaign import replay, shrink
from neurotest.jobs import stored
from neurotest.jobs.stored import named_code
from neurotest.reading import untrusted_run
from neurotest.semantics.describe.work import recorded
from neurotest.target import load

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
from neurotest.target import load


def build():
    return load("zoo:mnist-lenet5")
"""
# One spec in the spellings that a method's reader takes for the same.
SPELLINGS = (
    "differential:py:{0}.py:build",
    'differential("py:{0}.py:build")',
    r'differential(other="p\x79:{0}.p\x79:build")',
    r"differential(other='\160\171:{0}.p\u0079:build')",
    r'recognised:"\N{{LATIN SMALL LETTER P}}y\x3a{0}.\x70y:build"',
    r'differential:other="zoo:mnist-lenet5+p\x79:{0}.p\x79:build"',
    "differential('p' 'y:{0}.p' 'y:build')",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("campaign") / "run"
    neurotest.fuzz("zoo:mnist-lenet1", "zoo:mnist/test[:8]", "nlc", forwards=32, batch=16, tries=2, out=place)
    return place


@pytest.fixture
def sent(campaign: Path, tmp_path: Path) -> Path:
    """A campaign with a network of its own beside it."""
    shutil.copytree(campaign, tmp_path / "sent")
    (tmp_path / "sent" / "evil.py").write_text(EVIL)
    return tmp_path / "sent"


def change(run: Path, **entries: Any) -> None:
    with sqlite3.connect(run / "run.sqlite") as database:
        ((text,),) = database.execute("SELECT value FROM meta WHERE key = 'config'")
        database.execute("UPDATE meta SET value = ? WHERE key = 'config'", (json.dumps({**json.loads(text), **entries}),))
    database.close()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_network_that_an_oracle_names_is_not_loaded(spelling: str, tmp_path: Path) -> None:
    """As the oracle's own reader would read it, whether or not its text shows what it is."""
    (tmp_path / "evil.py").write_text(EVIL)
    oracle = spelling.format(tmp_path / "evil")
    built = registry.build("oracle", oracle)
    assert f"py:{tmp_path / 'evil'}.py:build" in built.other.split("+")
    assert f"py:{tmp_path / 'evil'}.py:build" in named_code({"oracle": [oracle]})
    with untrusted_run("sent"), refused("untrusted"):
        registry.build("oracle", oracle)
    with untrusted_run("sent"), refused("untrusted"):
        built.begin(load("zoo:mnist-lenet1"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("wall", "place"),
    [("text", "oracle"), ("text", "judge"), ("text", "anything"), ("methods", "oracle"), ("methods", "judge")],
)
def test_a_run_from_elsewhere_loads_no_network(wall: str, place: str, sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: by what the configuration says, and, where that is overlooked, by what is about to be opened."""
    spec = f"py:{sent}/evil.py:build"
    entries = {
        "oracle": [rf'differential(other="p\x79:{sent}/evil.p\x79:build")'],
        "judge": spec,
        "anything": [{"deeper": rf'x:"p\x79:{sent}/evil.p\x79:build"'}],
    }
    change(sent, **{place: entries[place]})
    if wall == "methods":
        monkeypatch.setattr(stored, "_refuse_named_code", lambda run, config: None)
    follow_ups = [lambda: neurotest.fuzz(resume=sent, forwards=64)]
    if place == "oracle":
        follow_ups.append(lambda: shrink(sent))
    if wall == "text":
        follow_ups.append(lambda: replay(f"{sent}#0"))
    for again in follow_ups:
        with refused("untrusted", place if wall == "text" else ""):
            again()
    assert not (sent / "ran").exists()


def test_a_network_of_the_zoo_is_loaded(sent: Path) -> None:
    change(sent, oracle=["differential:zoo:mnist-lenet5"])
    assert neurotest.fuzz(resume=sent, forwards=64).to_dict()["forwards"] >= 64


def test_a_description_names_no_file_of_the_reader(tmp_path: Path) -> None:
    """Words of a secret file would stand in the table that the sender gets back."""
    (tmp_path / "secret.txt").write_text("one\ntwo\n")
    for name, count in (("images", 6), ("texts", 2)):
        np.save(tmp_path / f"{name}.npy", np.eye(count, 6))
    words = f"{tmp_path / 'secret.txt'}"
    method = f"clip-dissect(images={str(tmp_path / 'images.npy')!r}, texts={str(tmp_path / 'texts.npy')!r}, words={words!r})"
    run, data = tmp_path / "sent", "zoo:mnist/test[:6]"
    recorded("zoo:mnist-lenet1", data, "class-profile", "pre_activation", out=run, k=3, seed=0, batch=6, quantile=0.99)
    change(run, method=method)
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("""UPDATE meta SET value = '"running"' WHERE key = 'state'""")
    database.close()
    with refused("untrusted"):
        recorded(None, None, None, None, resume=run)
    assert "one" not in (run / "descriptions.csv").read_text()


# Options that are words and never the name of anything outside.
WORDS = {
    "layer", "layers", "neuron", "variant", "strategy", "constraint", "lam", "changes", "at", "mode", "fallback", "operators",
    "round", "bound", "tolerance",
}  # fmt: skip
# Methods inside methods: their own options are looked at when they are built.
METHODS = {"criterion", "goals", "coverage", "encoder", "critical", "describe"}
ELSEWHERE = {"target source", "data source", "study", "check", "suite"}  # of which no run stores a method to be built


def test_every_option_that_could_name_a_file_says_so() -> None:
    """A new option of text has to be put among these, or into `opens` of its class."""
    for kind in set(registry.kinds()) - ELSEWHERE:
        for name, entry in registry.entries(kind).items():
            opens = getattr(entry.make, "opens", ())
            fields = dataclasses.fields(entry.make) if dataclasses.is_dataclass(entry.make) else ()
            texts = {field.name for field in fields if any(word in str(field.type) for word in ("str", "Any", "Path", "Target"))}
            unknown = {
                option for option in texts if option not in (WORDS | METHODS) and "Literal" not in str(entry.options[option].type)
            }
            assert unknown == set(opens), f"{kind} {name}"
