"""Pipes, links, long names, read-only folders, clocks, time zones, packages of others: a result or one sentence, and soon."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests import commands as processes
from tests.unit.serve.subjects import MODEL

pytestmark = pytest.mark.plain
SOURCE, RUNNER = Path(__file__).parents[2] / "src", Path(__file__).with_name("surroundings.py")
LIMIT = 400  # seconds: for whatever waits for ever
TARGET, SHAPE = "py:model.py:build", ("--size", "1x8x8", "--grey")
COVER = ("--criteria", "nc", "--no-report")
YEAR = 365 * 86_400


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROTEST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, images in class folders, a campaign and a selection."""
    folder = tmp_path_factory.mktemp("surroundings")
    (folder / "model.py").write_text(MODEL.replace("CLASSES", "2"))
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    for number, image in enumerate(pixels):
        place = folder / "photos" / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    fuzz = ("fuzz", TARGET, "dir:photos", *SHAPE, "--oracle", "metamorphic", "--forwards", 200, "--batch", 50, "--out", "fuzz")
    select = ("select", TARGET, "dir:photos", *SHAPE, "--budget", 4, "--no-report", "--out", "select")
    assert [one.code for one in commands(folder, fuzz, select)] == [0, 0]
    return folder


@pytest.fixture
def project(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base, tmp_path / "project")
    return tmp_path / "project"


def commands(
    folder: Path, *words: Sequence[object], zones: Sequence[str] = (), jump: float = 0.0, wrapper: Sequence[str] = (),
    path: Sequence[Path] = (),
) -> list[Done]:  # fmt: skip
    """Each of them, in one process; `zones`: all of them in each."""
    given = [
        {"words": [str(word) for word in one], "folder": str(folder), "env": env, "jump": jump}
        for env in ([{"TZ": zone} for zone in zones] or [{}])
        for one in words
    ]
    if not wrapper and not path:
        done = processes.run(cwd=folder, module="tests.e2e.surroundings", stdin=json.dumps(given), timeout=LIMIT)
    else:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, *path))), "OMP_NUM_THREADS": "1"}
        command = [*wrapper, sys.executable, "-P", str(RUNNER)]
        done = subprocess.run(
            command, input=json.dumps(given), capture_output=True, text=True, env=environment, timeout=LIMIT, check=False
        )
    assert done.returncode == 0, done.stderr
    return [Done(*one) for one in json.loads(done.stdout)]


def refused(words: Sequence[object], done: Done) -> None:
    assert done.code == 2, (words, done)
    assert [line[:11] for line in done.err.splitlines()] == ["neurotest: "], (words, done.err)


# -- links, pipes, sockets and devices


def odd_file(kind: str, file: Path) -> None:
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        os.chdir(file.parent)  # the path of a socket has 107 bytes at most
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(file.name)
    else:
        file.symlink_to({"loop": file.name, "dangling": "nowhere", "device": "/dev/zero"}[kind])


def naming(name: str) -> list[tuple[str, ...]]:
    """Commands that take a file of this name, and the ending that it has."""
    data = ("cover", TARGET, "dir:photos", *SHAPE, *COVER)
    kinds = (f"npz:{name}.npz#x", f"parquet:{name}.parquet#image,label", f"webdataset:{name}.tar", f"idx:{name}", f"dir:{name}",
             f"wav:{name}", f"dir:photos#{name}.csv")  # fmt: skip
    return [
        *[("cover", TARGET, kind, *SHAPE, *COVER) for kind in kinds],
        *[("cover", f"{kind}:{name}.{kind}{':build' * (kind == 'py')}", *data[2:]) for kind in ("onnx", "pt2", "py")],
        *[(*data, "--weights", f"{name}.{ending}") for ending in ("pt", "safetensors")],
        (*data, "--classes", f"{name}.txt"), (*data[:-3], "--criteria", "kmnc:5", "--train", f"npz:{name}.npz#x"),
        ("labels", "select", "add", f"{name}.csv"), ("status", name), ("replay", f"{name}.png"), ("merge", name, "fuzz"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "loop", "device", pytest.param("socket", marks=pytest.mark.slow), "dangling"])
def test_what_is_no_file_is_refused_and_nothing_waits_for_it(kind: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for ending in ("", ".npz", ".parquet", ".tar", ".csv", ".onnx", ".pt2", ".py", ".pt", ".safetensors", ".txt", ".png"):
        odd_file(kind, project / f"odd{ending}")
    odd_file(kind, project / "odd-images-idx3-ubyte")
    words = naming("odd")
    for one, done in zip(words, commands(project, *words), strict=True):
        refused(one, done)


def test_odd_files_among_good_ones_are_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for kind in ("pipe", "socket", "loop", "dangling", "device"):
        odd_file(kind, project / "photos" / "0" / f"{kind}.png")
    one, other = commands(
        project,
        ("cover", TARGET, "dir:photos", *SHAPE, *COVER, "--json"),
        ("fuzz", TARGET, "dir:photos", *SHAPE, "--forwards", 60),
    )
    assert (one.code, other.code) == (0, 0), (one, other)


def test_a_toml_that_is_a_pipe_does_not_hold_anybody_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    odd_file("pipe", project / "neurotest.toml")
    assert commands(project, ("cover", TARGET, "dir:photos", *SHAPE, *COVER))[0].code == 0


def test_links_that_lead_in_circles_are_not_followed(project: Path) -> None:
    """Two links to their own folder: every further level would double the work."""
    for name in ("one", "two"):
        (project / "photos" / name).symlink_to(".")
    words = [
        ("cover", TARGET, data, *SHAPE, *COVER) for data in ("parquet:photos/**/*.parquet", "webdataset:photos/**", "dir:photos")
    ]
    for one, done in zip(words, commands(project, *words), strict=True):
        refused(one, done)


# -- names and places


def test_names_of_255_bytes_and_paths_of_4096(project: Path) -> None:
    long, deep = "n" * 255, "/".join(["k" * 200] * 19)
    shutil.copytree(project / "photos" / "0", project / long)
    os.rename(project / long / "0.png", project / long / ("p" * 251 + ".png"))
    cover = ("cover", TARGET, f"dir:{long}", *SHAPE, *COVER)
    well = [
        (*cover, "--out", "z" * 255), ("select", TARGET, f"dir:{long}", *SHAPE, "--budget", 2, "--out", "y" * 255),
        ("report", "y" * 255),
        ("export", "y" * 255, "--format", "csv", "--out", "picks.csv"),
    ]  # fmt: skip
    for one, done in zip(well, commands(project, *well), strict=True):
        assert done.code == 0, (one, done)
    bad = [
        (*cover, "--out", "z" * 256), (*cover, "--out", f"{deep}/{'/'.join(['k' * 200] * 2)}"), ("status", deep * 2),
        ("runs", "list", deep * 2), ("export", "y" * 255, "--format", "csv", "--out", "x" * 256),
        ("cover", f"py:{'m' * 300}.py:build", "dir:photos", *SHAPE, *COVER), (*cover, "--classes", "m" * 5000),
    ]  # fmt: skip
    for one, done in zip(bad, commands(project, *bad), strict=True):
        refused(one, done)


def read_only(folder: Path) -> list[str]:
    """The beginning of a command that may not write to a folder."""
    if os.geteuid() != 0:
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o555)
        return []
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    wrapper = ["unshare", "-m", "sh", "-c", script, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root may write everywhere, and unshare cannot mount anything read-only here")
    return wrapper


def test_a_read_only_folder_is_read_and_refused_in_a_sentence(project: Path) -> None:
    cover = ("cover", TARGET, "dir:photos", *SHAPE, *COVER)
    well = [("status", "fuzz"), ("families", "fuzz"), ("runs", "list", "."), (*cover, "--out", project.parent / "elsewhere")]
    bad = [
        cover, (*cover, "--out", "new"), ("report", "fuzz"), ("fuzz", "--resume", "fuzz", "--forwards", 400), ("shrink", "fuzz"),
        ("export", "select", "--format", "csv", "--out", "x.csv"), ("runs", "clean", ".", "--keep", 0, "--yes"),
        ("init", TARGET, "dir:photos", *SHAPE), ("score", TARGET, "dir:photos", *SHAPE, "--method", "margin"),
    ]  # fmt: skip
    before = sorted(str(file) for file in project.rglob("*"))
    outcomes = commands(project, *well, *bad, wrapper=read_only(project))
    for one, done in zip(well, outcomes, strict=False):
        assert done.code == 0, (one, done)
    for one, done in zip(bad, outcomes[len(well) :], strict=True):
        assert done.code == 2, (one, done)
        assert "Traceback" not in done.err
    assert sorted(str(file) for file in project.rglob("*")) == before
    for place, _, _ in os.walk(project):
        os.chmod(place, 0o755)


# -- clocks


def test_any_time_zone_will_do(project: Path) -> None:
    zones = ("Pacific/Kiritimati", "America/St_Johns", "garbage", "UTC+99", "/etc/passwd", "")
    words = ("cover", TARGET, "dir:photos", *SHAPE, *COVER), ("runs", "list", "--json"), ("status", "fuzz")
    for done in commands(project, *words, zones=zones):
        assert done.code == 0, done
    assert len(list((project / "neurotest-runs").iterdir())) == len(zones)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_clock_that_jumps_ends_no_campaign(jump: float, project: Path) -> None:
    """By its passes; and by its seconds, which are counted by a clock that cannot be set."""
    fuzz = ("fuzz", TARGET, "dir:photos", *SHAPE, "--oracle", "metamorphic", "--islands", 2, "--json")
    passes, seconds, again = commands(
        project, (*fuzz, "--forwards", 300), (*fuzz, "--seconds", 1, "--out", "timed"),
        ("fuzz", "--resume", "fuzz", "--forwards", 400), jump=jump,
    )  # fmt: skip
    assert (passes.code, seconds.code, again.code) == (0, 0, 0), (passes, seconds, again)
    assert json.loads(passes.out)["forwards"] >= 300 * 0.9
    assert json.loads(seconds.out)["forwards"] > 0


@pytest.mark.parametrize(
    "created", ["2199-01-01T00:00:00+00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59", "yesterday"]
)
def test_a_run_made_at_an_impossible_time_is_still_listed(created: str, project: Path) -> None:
    with sqlite3.connect(project / "fuzz" / "run.sqlite") as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'created'", (json.dumps(created),))
    database.close()
    listed, resumed = commands(project, ("runs", "list", ".", "--json"), ("fuzz", "--resume", "fuzz", "--forwards", 300))
    assert (listed.code, resumed.code) == (0, 0), (listed, resumed)
    assert {"fuzz", "select"} == {Path(run["path"]).name for run in json.loads(listed.out)["runs"]}


# -- packages of others

SCORER = """
from neurotest.registry import register
from neurotest.select.scorer import OutputScorer

@register("selector", "deepgini", paper="", cost="")
class {}(OutputScorer):
    def score(self, probs):
        raise AssertionError("in place of neurotest's own")
"""
PACKAGES = {
    "raising": "raise RuntimeError('no')", "leaving": "import sys; sys.exit(0)", "loud": "print('on standard output')",
    "closing": "import sys; sys.stdout = None", "clashing": SCORER.format("Other"), "stealing": SCORER.format("DeepGini"),
    "wild": "class Wild(BaseException): pass\nraise Wild", "wrong": "def (",
}  # fmt: skip


def install(folder: Path, name: str, code: str) -> None:
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (folder / f"{name}.py").write_text(code)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = ("data_source", "target_source", "selector", "section")  # some are loaded before our selectors, some after
    (about / "entry_points.txt").write_text("".join(f"[neurotest.{group}]\n{name} = {name}\n" for group in groups))


def test_what_other_packages_do_while_they_are_imported_stays_with_them(project: Path) -> None:
    site = project.parent / "site"
    site.mkdir()
    for name, code in PACKAGES.items():
        install(site, name, code)
    select = ("select", TARGET, "dir:photos", *SHAPE, "--method", "deepgini", "--budget", 3, "--json")
    (done,) = commands(project, select, path=[site])
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["indices"]) == 3
    for name in ("raising", "leaving", "wild", "wrong", "clashing", "stealing"):
        assert name in done.err, name
    assert "could not be written" not in done.err
