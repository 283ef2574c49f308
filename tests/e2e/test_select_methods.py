"""Every method from the command line, picks out to people and labels back in, and bad input in one sentence each."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from neurotest import registry

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    hidden = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 8), nn.ReLU()]
    net = nn.Sequential(*hidden, nn.Linear(8, 4)).eval()
    with torch.no_grad():  # centred, so that every class is predicted
        net[-1].weight.mul_(20)
        net[-1].bias.sub_(net(torch.rand(200, 1, 8, 8)).mean(dim=0))
    return net
"""


@pytest.fixture
def here(tmp_path: Path) -> tuple[str, str, str]:
    """Target, pool, training data."""
    (tmp_path / "model.py").write_text(MODEL)
    random = np.random.default_rng(0)
    for name, n in (("pool", 60), ("train", 80)):
        np.savez(tmp_path / f"{name}.npz", x=random.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8), y=random.integers(0, 4, n))
    return f"py:{tmp_path}/model.py:build", f"npz:{tmp_path}/pool.npz#x,y", f"npz:{tmp_path}/train.npz#x,y"


METHODS = [
    "deepgini", "mc-dropout:samples=3", "bald:3", "lsa", "dsa", "mdsa", "mlsa", "ats", "ctm:nac", "cam:kmnc:10", "cam:nbc",
    "cam:snac", "cam:tknc", "cam:npc", "cam:dsc", "neighbours", "random", "ces", "pace",
]  # fmt: skip


def test_all_methods_in_one_table(cli, here: tuple[str, str, str], tmp_path: Path) -> None:
    target, pool, train = here
    (tmp_path / "labels.csv").write_text("position,label\n" + "".join(f"{i},{i % 4}\n" for i in range(12)))
    chosen = [word for method in METHODS for word in ("--method", method)]
    more = ("--train", train, "--labels", tmp_path / "labels.csv", "--spread", "--budget", 6)
    done = cli("select", target, pool, *chosen, *more, "--json", "--out", "run")
    assert done.code == 0, done.err
    methods = json.loads(done.out)["methods"]
    assert list(methods) == METHODS
    for method, result in methods.items():
        assert len(set(result["indices"])) == 6
        if method in registry.entries("estimator"):
            assert result["accuracy_interval"][0] <= result["accuracy"] <= result["accuracy_interval"][1]
        else:
            assert 0 <= result["near_duplicates"] <= 1
            assert 0 <= result["fdr"] <= 1
    assert cli("report", "run").code == 0
    assert "Accuracy, estimated from the labelled picks" in Path("run/report.html").read_text()
    assert cli("select", target, pool, "--method", "ces", "--budget", 6, "--fail-if", "accuracy<2").code == 1


def test_out_to_people_and_back(cli, here: tuple[str, str, str]) -> None:
    target, pool, _ = here
    assert cli("select", target, pool.replace(",y", ""), "--budget", 10, "--out", "run").code == 0
    done = cli("export", "run", "--format", "csv", "--out", "picks.csv")
    assert done.code == 0, done.err
    with open("picks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([["content", "label"], *([row["content"], number % 4] for number, row in enumerate(rows))])
    done = cli("select", target, pool, "--method", "neighbours:3", "--labels", "labels.csv", "--budget", 5, "--json")
    assert done.code == 0, done.err
    assert not set(json.loads(done.out)["indices"]) & {int(row["position"]) for row in rows}
    assert json.loads(cli("export", "run", "--format", "folder", "--out", "pictures", "--json").out)["exported"] == 10
    assert json.loads(cli("export", "run", "--format", "label-studio", "--out", "tasks.json", "--json").out)["exported"] == 10
    assert len(json.loads(Path("tasks.json").read_text())) == 10


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--method", "dsa"), "dsa needs training data: give --train DATA"),
        (("--method", "cam:kmnc"), "cam:kmnc needs training data"),
        (("--method", "neighbours"), "needs labels of some candidates"),
        (("--method", "cam:nlc"), "has no obligations to count"),
        (("--method", "bald:samples=1"), "samples=1: expected an integer >= 2"),
        (("--budget", "61"), "the pool has only 60 inputs"),
        (("--labels", "nowhere.csv"), "nowhere.csv cannot be read as a labels file"),
    ],
)
def test_bad_input_is_one_sentence(cli, here: tuple[str, str, str], words: tuple[str, ...], sentence: str) -> None:
    target, pool, _ = here
    done = cli("select", target, pool, *words, "--out", "run")
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert not Path("run").exists()


def test_labels_that_cannot_be_right(cli, here: tuple[str, str, str]) -> None:
    target, pool, _ = here
    for content, sentence in (
        ("position,label\n99,1\n", "not in the pool (first: 99): is the labels file from another run?"),
        ("position,label\n1,1\n1,2\n", "line 3 labels input 1 as 2, but line 2 says 1"),
        ("position,label\n1,9\n", "label 9: the target has 4 classes"),
    ):
        Path("labels.csv").write_text(content)
        done = cli("select", target, pool, "--method", "neighbours", "--labels", "labels.csv")
        assert done.code == 2
        assert sentence in done.err


def test_a_network_without_dropout(cli, here: tuple[str, str, str]) -> None:
    _, pool, _ = here
    Path("plain.py").write_text(MODEL.replace("nn.Dropout(0.5), ", ""))
    done = cli("select", "py:plain.py:build", pool, "--method", "mc-dropout")
    assert done.code == 2
    assert "no dropout module that could be switched on" in done.err


def test_a_method_that_does_not_fit_has_a_row_with_the_reason(cli, here: tuple[str, str, str]) -> None:
    target, pool, _ = here
    methods = ("--method", "dsa", "--method", "deepgini")
    done = cli("select", target, pool, *methods, "--json", "--out", "run")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["method"] == "deepgini"
    assert content["methods"]["dsa"] == {
        "error": "dsa needs training data: give --train DATA (1,000 inputs are enough to begin with)."
    }
    shown = cli("select", target, pool, *methods, "--out", "again")
    assert "did not run: dsa needs" in shown.out
    assert "Traceback" not in shown.err
    assert "dsa did not run" in cli("select", target, pool.replace(",y", ""), *methods, "--out", "blind").out
    none = cli("select", target, pool, *methods, "--layers", "nowhere*", "--out", "none")
    assert none.code == 2
    assert "deepgini looks at the outputs only" in none.err
    assert not Path("none").exists()
