"""Folders, files and classes whose names are not UTF-8: every command works there, and what it prints can be pasted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests import commands
from tests.e2e.servers import Server
from tests.unit.serve.subjects import HOLDER, MODEL

from neurotest.runs import schema
from neurotest.runs.store import Run

pytestmark = pytest.mark.plain
ODD = os.fsdecode(b"caf\xe9")
TARGET = ("py:model.py:build", "--size", "1x8x8", "--grey")
CLASSES = (b"a", b"caf\xe9", b"z\xff")


def make_project(folder: Path) -> Path:
    """A network, and pictures in folders of the names above."""
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    (folder / "model.py").write_text(MODEL.replace("CLASSES", str(len(CLASSES))))
    pixels = np.random.default_rng(0).integers(0, 256, (len(CLASSES), 8, 8, 8), dtype=np.uint8)
    for name, images in zip(CLASSES, pixels, strict=True):
        place = folder / "photos" / os.fsdecode(name)
        place.mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(place / os.fsdecode(b"\xe9%d.png" % number))
    shutil.copytree(folder / "photos" / os.fsdecode(CLASSES[1]), folder / "pool")  # without labels
    return folder


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("odd") / ODD)
    neurotest(folder, "select", *TARGET[:1], "dir:pool", *TARGET[1:], "--method", "adaptive", "--budget", 3, "--out", "sel")
    neurotest(folder, "select", *TARGET[:1], "dir:photos", *TARGET[1:], "--budget", 6, "--out", "classes")
    fuzz = ("--oracle", "metamorphic", "--forwards", 300, "--batch", 50)
    neurotest(folder, "fuzz", *TARGET[:1], "dir:photos", *TARGET[1:], *fuzz, "--out", "fuzz")
    return folder


def neurotest(folder: Path, *words: object, code: int = 0, shell: str | None = None) -> str:
    """Run it there as a process; a bug is exit 4."""
    variables = {"NEUROTEST_CACHE": str(folder.parent / os.fsdecode(b"c\xe9che"))}
    if shell is None:
        done = commands.run(*words, cwd=folder, variables=variables)  # strictly: all that it prints is UTF-8
    else:
        environment = {**os.environ, **variables, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1"}
        command = ["bash", "-c", f"{shlex.quote(sys.executable)} -m {shell}"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, encoding="utf-8")
    assert done.returncode == code, (words, shell, done.stdout[-500:], done.stderr[-1000:])
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("select", "--status", "sel"), ("report", "sel"), ("report", "classes"), ("labels", "sel", "history"),
        ("runs", "list", "."),
        ("export", "sel", "--format", "csv", "--out", "picks.csv"), ("export", "sel", "--format", "folder", "--out", "picks"),
        ("export", "sel", "--format", "label-studio", "--out", "tasks.json"), ("status", "fuzz"), ("report", "fuzz"),
        ("families", "fuzz"), ("fuzz", "--resume", "fuzz", "--forwards", 600),
        ("export", "fuzz", "--format", "faults", "--out", "faults.json"),
    ],
    ids=lambda words: "-".join(map(str, words[:4])),
)  # fmt: skip
def test_every_command_works_there(odd: Path, words: tuple[object, ...]) -> None:
    neurotest(odd, *words)


def test_a_fault_is_replayed_and_shrunk_by_its_path(odd: Path) -> None:
    with Run.open(odd / "fuzz") as run:
        file = next(file for (file,) in run.rows("SELECT file FROM mutant WHERE oracle IS NOT NULL AND file IS NOT NULL"))
        number = run.rows("SELECT number FROM mutant WHERE file = ?", file)[0][0]
    for named in (f"{odd / 'fuzz'}#{number}", f"fuzz/{file}"):
        neurotest(odd, "replay", named)
    neurotest(odd, "shrink", odd / "fuzz", number)


def test_the_command_that_is_printed_can_be_pasted(odd: Path) -> None:
    """Also where a shell would take a part of the name for a command."""
    place = odd / f"a run; touch planted {ODD}"
    neurotest(odd, "select", *TARGET[:1], "dir:pool", *TARGET[1:], "--method", "adaptive", "--budget", 3, "--out", place)
    state = json.loads(neurotest(odd, "select", "--status", place, "--json"))
    export, _, add = state["command"].partition(", then ")
    assert place.name not in state["command"]
    neurotest(odd, shell=export.replace("FILE", "some.csv"))
    text = (odd / "some.csv").read_text()  # strictly
    head, *rows = [line.split(",") for line in text.splitlines()]
    column = head.index("label")
    labelled = [[*row[:column], "1", *row[column + 1 :]] for row in rows]
    (odd / "some.csv").write_text("\n".join(",".join(row) for row in [head, *labelled]) + "\n")
    neurotest(odd, shell=add.replace("FILE", "some.csv"))
    neurotest(odd, "select", "--resume", place)
    with Run.open(place) as run:
        assert {row.label for row in run.labels()} == {1}
    assert not (odd / "planted").exists()


def test_pages_are_served_there(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(odd.parent / os.fsdecode(b"c\xe9che")))
    with Server("label", odd / "sel", cwd=odd) as server:
        assert server.ask("/api/about").json["classes"][0] == "0"
        shown = server.ask("/api/next", {"holder": HOLDER}).json["input"]
        assert "\\udce9" in shown["name"]
        assert server.ask(shown["picture"]).status == 200
        for form in ("csv", "folder", "label-studio"):
            assert server.ask(f"/api/export?format={form}").status == 200
    with Server("serve", "fuzz", cwd=odd) as server:
        for path in ("/api/state", "/api/sections", "/api/families", "/api/jobs"):
            assert server.ask(path).status == 200, path
        family = server.ask("/api/families").json["families"][0]
        faults = server.ask(f"/api/families/{family['key']}/faults").json["faults"]
        assert "\\udc" in server.ask(f"/api/faults/{faults[0]['number']}").json["seed"]


def test_a_run_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong between the database and the first row."""

    class Broken(Exception):
        pass

    def broken(*arguments: object, **options: object) -> None:
        raise Broken

    monkeypatch.setattr(schema, "open_checked", broken)
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "new" / ODD / "run", tmp_path / "empty"):
        with pytest.raises(Broken):
            Run.create(place, "select", {})
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
