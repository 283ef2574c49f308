"""The labelling loop as a stranger has it: photographs, a network of their own, five rounds out and back, by file names."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.stranger import PHOTOGRAPHS, make_photographs, project_spec

from neurotest import load
from neurotest.data.spec import data
from neurotest.images import Preprocess
from neurotest.runs.store import Run
from neurotest.select.adaptive import loop

Cli = Callable[..., Any]
ROUNDS, SIZE = 5, 6


@pytest.fixture
def truth(project: Path, tmp_path: Path, cli: Cli) -> dict[str, str]:
    return make_photographs(project, tmp_path)


@pytest.fixture
def begun(truth: dict[str, str], cli: Cli) -> dict[str, Any]:
    done = cli(
        "select", "py:models.py:cnn", "dir:photos", *PHOTOGRAPHS, "--method", "adaptive", "--budget", SIZE, "--out", "run",
        "--json", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    content: dict[str, Any] = json.loads(done.out)
    return content


def read(cli: Cli, *arguments: object) -> dict[str, Any]:
    done = cli(*arguments, "--json")
    assert done.code == 0, done.err
    content: dict[str, Any] = json.loads(done.out)
    return content


# -- how a person labels what was exported: gives the file for `labels add`


def by_csv(cli: Cli, number: int, truth: dict[str, str]) -> tuple[Path, list[str]]:
    """A table of their own, with nothing but names and labels."""
    exported = Path(f"out{number}.csv")
    read(cli, "export", "run", "--format", "csv", "--out", exported)
    with open(exported, newline="") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    column = ("file", "name", "filename", "path", "image")[number % 5]
    places = names if number % 2 else [f"/somewhere/photos/{name}" for name in names]
    rows = [f"{column},label", *(f"{place},{truth[name]}" for place, name in zip(places, names, strict=True))]
    labels = Path(f"mine{number}.csv")
    labels.write_text("\n".join(rows) + "\n")
    return labels, names


def by_lines(cli: Cli, number: int, truth: dict[str, str]) -> tuple[Path, list[str]]:
    """JSON lines, classes as numbers."""
    _, names = by_csv(cli, number, truth)
    classes = Path("classes.txt").read_text().splitlines()
    labels = Path(f"mine{number}.jsonl")
    labels.write_text("".join(json.dumps({"file": name, "label": classes.index(truth[name])}) + "\n" for name in names))
    return labels, names


def by_label_studio(cli: Cli, number: int, truth: dict[str, str]) -> tuple[Path, list[str]]:
    """Annotations as Label Studio exports them; odd rounds without what neurotest wrote, with its address of an uploaded file."""
    tasks_file = Path(f"out{number}.json")
    read(cli, "export", "run", "--format", "label-studio", "--out", tasks_file)
    tasks = json.loads(tasks_file.read_text())
    names = [task["data"]["file"] for task in tasks]
    for task, name in zip(tasks, names, strict=True):
        result = [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [truth[name]]}}]
        task["annotations"] = [{"was_cancelled": False, "result": result}]
        if number % 2:
            task["data"] = {"image": f"/data/upload/3/0a1b2c3d-{name}"}
    labels = Path(f"mine{number}.json")
    labels.write_text(json.dumps(tasks))
    return labels, names


def by_exported_folder(cli: Cli, number: int, truth: dict[str, str]) -> tuple[Path, list[str]]:
    """Pictures are moved to the folder of their class."""
    out = Path(f"out{number}")
    read(cli, "export", "run", "--format", "folder", "--out", out)
    names = {}
    with open(out / "exported.csv", newline="") as file:
        for row in csv.DictReader(file):
            names[row["picture"]] = row["file"]
    for picture, name in names.items():
        (out / truth[name]).mkdir(exist_ok=True)
        (out / picture).rename(out / truth[name] / Path(picture).name)
    return out, list(names.values())


def by_own_folder(cli: Cli, number: int, truth: dict[str, str]) -> tuple[Path, list[str]]:
    """Their own photographs, copied into a folder per class."""
    _, names = by_csv(cli, number, truth)
    out = Path(f"sorted{number}")
    for name in names:
        (out / truth[name]).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("photos") / name, out / truth[name] / name)
    return out, names


WAYS = [by_csv, by_lines, by_label_studio, by_exported_folder, by_own_folder]


@pytest.fixture(scope="session")
def expected(project: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What the loop in Python proposes, round by round, told the truth."""
    folder = tmp_path_factory.mktemp("expected")
    truth = make_photographs(project, folder)
    classes = (folder / "classes.txt").read_text().splitlines()
    target = load(
        project_spec(folder), weights=folder / "cnn.safetensors", mean=[0.3], std=[0.4], classes=classes, size="1x28x28",
        resize="28x28",
    )  # fmt: skip
    pool = data(f"dir:{folder / 'photos'}", shape=(1, 28, 28), preprocess=Preprocess(resize="28x28"))
    assert pool.names is not None
    labels = np.array([classes.index(truth[name]) for name in pool.names])
    learner = loop(target, pool)
    batches = []
    for _ in range(ROUNDS):
        batch = learner.propose(SIZE)
        learner.tell(batch, labels[batch])
        batches.append(batch.tolist())
    return batches


@pytest.mark.parametrize("way", WAYS)
def test_five_rounds(
    way: Callable[..., tuple[Path, list[str]]], begun: dict[str, Any], truth: dict[str, str], cli: Cli, expected: list[list[int]]
) -> None:
    names = sorted(truth)
    proposal = begun
    for number in range(1, ROUNDS + 1):
        assert proposal["indices"] == expected[number - 1]
        assert proposal["files"] == [names[p] for p in proposal["indices"]]
        file, exported = way(cli, number, truth)
        assert sorted(exported) == sorted(proposal["files"])
        right = all(truth[name] == word for name, word in zip(proposal["files"], _predicted(proposal), strict=True))
        unmoved = ["--confirmed"] if right and way is by_exported_folder else []
        added = read(cli, "labels", "run", "add", file, "--by", "ann", *unmoved)
        assert (added["added"], added["pending"], added["labels"]) == (SIZE, 0, number * SIZE)
        again = cli("export", "run", "--format", "csv", "--out", "again.csv")
        assert again.code == 2
        assert f"inputs of round {number} have a label" in again.err
        if number < ROUNDS:
            proposal = read(cli, "select", "--resume", "run", "-q")
            assert proposal["round"] == number + 1
    shown = read(cli, "labels", "run", "show")["labels"]
    assert {one["file"]: one["label_name"] for one in shown} == {names[p]: truth[names[p]] for b in expected for p in b}
    everything = read(cli, "export", "run", "--all", "--format", "csv", "--out", "all.csv")
    assert (everything["exported"], everything["rounds"]) == (ROUNDS * SIZE, [1, 2, 3, 4, 5])
    with open("all.csv", newline="") as table:
        assert all(row["label"] == truth[row["file"]] for row in csv.DictReader(table))
    page = cli("report", "run")
    assert page.code == 0, page.err
    text = Path("run/report.html").read_text()
    assert "Rounds of labelling" in text
    assert "Picks by adaptive round 5: the first " in text
    assert all(names[p] in text for p in expected[-1])


def test_status_says_where_it_stands(begun: dict[str, Any], truth: dict[str, str], cli: Cli) -> None:
    before = read(cli, "select", "--status", "run")
    assert (before["labels"], before["pending"], before["random"], before["go_on"]) == (0, SIZE, None, True)
    file, _ = by_csv(cli, 1, truth)
    read(cli, "labels", "run", "add", file)
    after = read(cli, "select", "--status", "run")
    wrong = sum(truth[name] != row for name, row in zip(begun["files"], _predicted(begun), strict=True))
    assert (after["labels"], after["faults"], after["pending"]) == (SIZE, wrong, 0)
    assert after["rounds"] == [
        {
            "round": 1,
            "size": SIZE,
            "labels": SIZE,
            "faults": wrong,
            "expected": pytest.approx(sum(begun["scores"]), rel=0.05),
            "pending": 0,
        }
    ]
    low, high = after["random"]["faults_interval"]
    assert low <= after["random"]["faults"] <= high
    total = after["faults"] + after["remaining"]
    assert after["random"]["fdr"] == pytest.approx(total / after["pool"], abs=0.5 / after["pool"])
    assert after["next"]["size"] == SIZE
    assert isinstance(after["go_on"], bool)
    told = cli("select", "--status", "run")
    assert after["advice"] in told.out
    assert after["command"] in told.out
    assert "random labels" in told.out


def _predicted(content: dict[str, Any]) -> list[str]:
    classes = Path("classes.txt").read_text().splitlines()
    return [classes[number] for number in content["predicted"]]


def test_labels_are_corrected_and_kept(begun: dict[str, Any], truth: dict[str, str], cli: Cli) -> None:
    first, second = begun["files"][:2]
    Path("a.csv").write_text(f"file,label\n{first},bag\n{second},coat\n")
    read(cli, "labels", "run", "add", "a.csv", "--by", "ann")
    Path("b.csv").write_text(f"file,label\n{first},dress\n{second},unclear\n")
    refused = cli("labels", "run", "add", "b.csv")
    assert refused.code == 2
    assert "is labelled dress, but run has bag for it: keep one, or say --replace" in refused.err
    replaced = read(cli, "labels", "run", "add", "b.csv", "--replace", "--by", "bob")
    assert (replaced["added"], replaced["replaced"], replaced["labels"]) == (0, 2, 2)

    def now() -> dict[str, str]:
        return {one["file"]: one["label_name"] for one in read(cli, "labels", "run", "show")["labels"]}

    assert now() == {first: "dress", second: "unclear"}
    undone = read(cli, "labels", "run", "undo", second)
    assert [(one["label"], one["now"]) for one in undone["inputs"]] == [("unclear", "coat")]
    assert now() == {first: "dress", second: "coat"}
    read(cli, "labels", "run", "undo")
    assert now() == {first: "bag", second: "coat"}
    read(cli, "labels", "run", "undo")
    assert now() == {}
    nothing = cli("labels", "run", "undo")
    assert nothing.code == 2
    assert "no label to take back" in nothing.err
    history = read(cli, "labels", "run", "history")["labels"]
    assert [one["state"] for one in history[:4]] == ["taken back"] * 4
    assert [one["undoes"] for one in history[4:]] == [4, 3, 1, 2]
    assert read(cli, "select", "--resume", "run", "-q")["again"]


def test_a_folder_that_nobody_sorted(begun: dict[str, Any], cli: Cli) -> None:
    read(cli, "export", "run", "--format", "folder", "--out", "pictures")
    for again in range(2):
        refused = cli("labels", "run", "add", "pictures")
        assert refused.code == 2
        assert "nobody sorted it, all 6 images lie where the export put them" in refused.err
        assert read(cli, "labels", "run", "show")["labels"] == []
        if not again:
            shutil.move("pictures", "elsewhere")
            shutil.move("elsewhere", "pictures")
    assert read(cli, "labels", "run", "add", "pictures", "--confirmed")["added"] == SIZE


def test_photographs_and_a_table_of_labels_are_a_source(truth: dict[str, str], cli: Cli) -> None:
    rows = [f"{name},{label}" for name, label in truth.items()]
    Path("labels.csv").write_text("image,label\n" + "\n".join(rows[:-2]) + "\nIMG_9999.png,coat\n")
    done = cli("select", "py:models.py:cnn", "dir:photos#labels.csv", *PHOTOGRAPHS, "--budget", 10, "--json", "--out", "run")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["pool"] == len(truth) - 2
    assert 0 <= content["fdr"] <= 1
    assert "2 of 80 files have no label in labels.csv and are left out" in done.err
    assert "1 labels of labels.csv are for files that are not in the folder (first: IMG_9999.png)" in done.err
    names = sorted(truth)[:-2]
    assert content["files"] == [names[p] for p in content["indices"]]
    assert content["files"][0] in cli("report", "run", "--out", "page.html").out + Path("page.html").read_text()
    wrong = [truth[f] != p for f, p in zip(content["files"], _predicted(content), strict=True)]
    assert content["fdr"] == pytest.approx(sum(wrong) / 10)


def test_labels_given_at_the_start_are_not_forgotten(truth: dict[str, str], cli: Cli) -> None:
    names = sorted(truth)[:20]
    Path("known.csv").write_text("file,label\n" + "".join(f"{name},{truth[name]}\n" for name in names))
    start = ["select", "py:models.py:cnn", "dir:photos", *PHOTOGRAPHS, "--method", "adaptive", "--budget", SIZE]
    first = read(cli, *start, "--labels", "known.csv", "--out", "run", "-q")
    assert not set(first["indices"]) & set(range(20))
    assert read(cli, "select", "--status", "run")["labels"] == 20
    file, _ = by_csv(cli, 1, truth)
    read(cli, "labels", "run", "add", file)
    second = read(cli, "select", "--resume", "run", "-q")
    assert second["labels"] == 20 + SIZE
    assert not set(second["indices"]) & {*range(20), *first["indices"]}


def test_faults_name_the_photograph_they_were_made_from(truth: dict[str, str], cli: Cli) -> None:
    Path("labels.csv").write_text("file,label\n" + "".join(f"{name},{label}\n" for name, label in truth.items()))
    about = ["py:models.py:cnn", "dir:photos#labels.csv", *PHOTOGRAPHS]
    read(cli, "fuzz", *about, "--guide", "random", "--forwards", 400, "--out", "fuzz", "-q")
    names = sorted(truth)
    families = read(cli, "families", "fuzz")["families"]
    assert families
    assert all(row["root_file"] == names[row["root"]] for row in families)
    assert families[0]["root_file"] in cli("families", "fuzz").out
    assert cli("report", "fuzz").code == 0
    assert families[0]["root_file"] in Path("fuzz/report.html").read_text()
    read(cli, "attack", *about, "--attack", "fgsm:eps=0.1", "--out", "attack", "-q")
    with Run.open("attack") as run:
        assert {row.name for row in run.inputs()} <= set(names)
        assert all(row.name == names[row.position] for row in run.inputs())
