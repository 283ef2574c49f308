"""A run somebody sends must not run code through the networks that its oracles or its guide name."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest.campaign import fuzz, merge, shrink

MODEL = """
from pathlib import Path

Path("ran").touch()

def build():
    from neurotest.zoo import build
    return build("mnist-lenet1")
"""


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign against a zoo: network, made elsewhere, with a Python file inside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "their cache"))
    seeds = "zoo:mnist/test[:40]"
    result = fuzz("zoo:mnist-lenet1", seeds, "random", iterations=40, control=False, out=tmp_path / "sent")
    assert result.to_dict()["faults"] > 0
    (tmp_path / "sent/model.py").write_text(MODEL)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "our cache"))
    return tmp_path / "sent"


def change(run: Path, key: str, value: object) -> None:
    with sqlite3.connect(run / "run.sqlite") as database:
        (text,) = database.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
        database.execute("UPDATE meta SET value = ? WHERE key = 'config'", (json.dumps({**json.loads(text), key: value}),))


@pytest.mark.parametrize("target", [None, "zoo:mnist-lenet1"])
def test_an_oracle_that_names_a_python_file_is_refused(sent: Path, target: str | None) -> None:
    change(sent, "oracle", ["label", f"differential:py:{sent}/model.py:build"])
    with refused("untrusted", "oracle"):
        shrink(sent, target)
    with refused("untrusted", "oracle"):
        fuzz(target, resume=sent, iterations=80)
    assert not Path("ran").exists()


def test_oracles_of_the_zoo_and_the_untouched_run_still_work(sent: Path) -> None:
    assert fuzz(resume=sent, iterations=50).to_dict()["faults"] > 0
    change(sent, "oracle", ["label", "differential:zoo:mnist-lenet4"])
    shrink(sent)


@pytest.mark.parametrize("theirs_first", [True, False])
def test_merging_does_not_make_what_somebody_sent_trusted(sent: Path, tmp_path: Path, theirs_first: bool) -> None:
    """The merged run is written here, but its oracles and its target's description are those of the runs it was made from."""
    ours = tmp_path / "ours"
    fuzz("zoo:mnist-lenet1", "zoo:mnist/test[:40]", "random", iterations=40, seed=1, control=False, out=ours)
    change(sent, "oracle", ["label", f"differential:py:{sent}/model.py:build"])
    merge([sent, ours] if theirs_first else [ours, sent], tmp_path / "merged")
    with refused("untrusted", "oracle"):
        shrink(tmp_path / "merged")
    change(sent, "oracle", ["label"])
    change(sent, "description", {"spec": f"py:{sent}/model.py:build"})
    merge([sent, sent], tmp_path / "twice")
    with refused("untrusted", "target"):
        shrink(tmp_path / "twice")
    assert not Path("ran").exists()
