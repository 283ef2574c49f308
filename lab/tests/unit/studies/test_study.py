"""Studies: cells are computed once, kept, and tables are made of what is there."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.refusals import refused

from neurotest import interrupts, registry, zoo
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.scale.opening import workers
from neurotest.scale.processes import Process, Processes
from neurotest_lab.studies import frame
from neurotest_lab.studies.frame import Cell, Row, Study, Subjects
from neurotest_lab.studies.nss import cells as nss_cells
from neurotest_lab.studies.nss import published as nss_published
from neurotest_lab.studies.nss.study import NssStudy
from neurotest_lab.studies.run import run_study
from neurotest_lab.studies.workers import contents

computed: list[str] = []


class Counting:
    """Two cells; the second one fails the first time."""

    fails = True

    def cells(self, scale: str) -> list[Cell]:
        return [Cell("a", lambda: computed.append("a") or 1), Cell("b", self._b)]

    def _b(self) -> int:
        computed.append("b")
        if type(self).fails:
            type(self).fails = False
            raise RuntimeError("interrupted")
        return 2

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        return {"tables": {"all": [{"cell": key, "value": value} for key, value in done.items()]}, "checks": {"cells": len(done)}}


def test_a_finished_cell_is_not_computed_again(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "counting", paper="", cost="")(Counting)
    try:
        with pytest.raises(RuntimeError):
            run_study("counting", out=tmp_path / "run")
        result = run_study("counting", resume=tmp_path / "run")
        assert computed == ["a", "b", "b"]
        assert result["tables"]["all"] == [{"cell": "a", "value": 1}, {"cell": "b", "value": 2}]
        assert result["missing"] == []
        with refused("wrong-run"):
            run_study("nss", resume=tmp_path / "run")
        with refused("changed", "scale"):
            run_study("counting", "full", resume=tmp_path / "run")
        with refused("conflict", "out"):
            run_study("counting", resume=tmp_path / "run", out=tmp_path / "other")
        assert run_study("counting", "quick", resume=tmp_path / "run")["scale"] == "quick"
    finally:
        registry._entries["study"].pop("counting")


def test_a_study_that_died_just_after_its_database_appeared_ends_as_any_other(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "counting", paper="", cost="")(Counting)
    Counting.fails = False
    try:
        Run.create(tmp_path / "run", "study", {"study": "counting", "scale": "quick"}).close()
        run_study("counting", resume=tmp_path / "run")
    finally:
        registry._entries["study"].pop("counting")
    with Run.open(tmp_path / "run") as run:
        assert run.is_filled
        assert run["state"] == "done"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["filled"] is True


class Optional:
    """One cell, and one more for who names it."""

    def cells(self, scale: str) -> list[Cell]:
        return [Cell("a", lambda: 1), Cell("more/b", lambda: 2, optional=True)]

    tables = Counting.tables


def test_a_cell_that_must_be_named(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "optional", paper="", cost="")(Optional)
    try:
        plain = run_study("optional", out=tmp_path / "run")
        assert (plain["checks"], plain["missing"]) == ({"cells": 1}, [])
        assert run_study("optional", resume=tmp_path / "run", only="more/")["checks"] == {"cells": 2}
        assert run_study("optional", resume=tmp_path / "run")["checks"] == {"cells": 2}
    finally:
        registry._entries["study"].pop("optional")


class Partial(Study):
    """A cell with content, and two that cannot be computed here."""

    subjects = Subjects(("mnist-lenet1",), ("mnist-lenet1", "cifar10-resnet56"))
    absent = (("figure 1", "a drawing"),)

    def each_cell(self, scale: str) -> list[Cell]:
        return [Cell("a/0", lambda: {"value": 1}), Cell("b/0", self._refuse), Cell("b/1", self._refuse)]

    def _refuse(self) -> None:
        raise BadInput("no such data")

    def results(self, scale: str, done: dict[str, Any]) -> tuple[dict[str, list[Row]], dict[str, float]]:
        return {"all": [{"cell": key, **value} for key, value in done.items()]}, {}

    def left_out(self, scale: str, done: dict[str, Any]) -> list[tuple[str, str]]:
        return [("more seeds", "time")]

    def absent_name(self, key: str) -> str:
        return f"method {key[0]}"


def test_one_cell_that_cannot_be_computed_does_not_stop_the_study(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "partial", paper="", cost="")(Partial)
    try:
        result = run_study("partial", out=tmp_path / "run")
    finally:
        registry._entries["study"].pop("partial")
    assert result["missing"] == []
    assert result["tables"]["all"] == [{"cell": "a/0", "value": 1}]
    listed = [(row["what"], row["why"]) for row in result["tables"]["not rerun"]]
    assert listed[:2] == [("figure 1", "a drawing"), ("more seeds", "time")]
    assert listed[-1] == ("method b", "no such data")  # once, not for each seed
    if zoo.find("cifar10-resnet56").weights is None:
        assert listed[2] == ("cifar10-resnet56", "its weights are not here: `neurotest zoo train cifar10-resnet56`")


class Later(Partial):
    """The data of one cell comes between two runs."""

    here: ClassVar[list[str]] = []

    def each_cell(self, scale: str) -> list[Cell]:
        return [Cell("a/0", lambda: computed.append("a/0") or {"value": 1}), Cell("b/0", self._read), Cell("c/0", self._refuse)]

    def _read(self) -> Row:
        if not self.here:
            self._refuse()
        return {"value": 2}


def test_what_was_absent_is_tried_again_on_resume(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "later", paper="", cost="")(Later)
    computed.clear()
    try:
        first = run_study("later", out=tmp_path / "run")
        assert [row["cell"] for row in first["tables"]["all"]] == ["a/0"]
        Later.here.append("data")
        partly = run_study("later", resume=tmp_path / "run", only="c/")  # b is not asked for: it stays as it was
        assert [row["cell"] for row in partly["tables"]["all"]] == ["a/0"]
        again = run_study("later", resume=tmp_path / "run")
    finally:
        registry._entries["study"].pop("later")
        Later.here.clear()
    assert [row["cell"] for row in again["tables"]["all"]] == ["a/0", "b/0"]
    reasons = {row["what"]: row["why"] for row in again["tables"]["not rerun"]}
    assert "method b" not in reasons
    assert reasons["method c"] == "no such data"
    assert computed == ["a/0"]  # what is finished stays


def test_subjects_of_a_scale() -> None:
    if zoo.find("mnist-lenet1").weights is None or zoo.find("mnist-lenet5").weights is None:
        pytest.skip("the weights are not here")
    subjects = Subjects(("mnist-lenet1",), ("mnist-lenet1", "mnist-lenet5"))
    assert subjects.here("quick") == ["mnist-lenet1"]
    assert subjects.here("full") == ["mnist-lenet1", "mnist-lenet5"]
    assert subjects.absent("quick") == [("mnist-lenet5", "not part of the quick scale")]
    assert subjects.absent("full") == []


def test_a_scale_that_does_not_exist(tmp_path: Path) -> None:
    with refused("out-of-range", "scale"):
        run_study("nss", "huge", out=tmp_path / "run")


def test_tables_of_nothing_still_say_what_is_not_rerun() -> None:
    result = NssStudy().tables("quick", {})
    assert any("SVHN" in row["what"] for row in result["tables"]["not rerun"])
    assert result["checks"] == {}
    json.dumps(result, allow_nan=False)


def test_the_published_tables_are_whole() -> None:
    for subject, rows in nss_published.FDR.items():
        assert [len(row) for row in rows] == [len(nss_published.METHODS)] * 4
        assert set(nss_published.AREA[subject]) == set(nss_published.METHODS)
        assert len(nss_published.BY_SHARE[subject]) == len(nss_published.SHARES)
        assert len(nss_published.BY_LAYER[subject]) == 4
    assert set(nss_cells.FIXED) == set(nss_published.FIXED)


@pytest.mark.parametrize(
    ("subject", "layers"), [("mnist-fcnet5", 4), ("mnist-conv1d", 2), ("mnist-conv2d", 4), ("mnist-lenet1", 4)]
)
def test_layers_of_small_networks(subject: str, layers: int) -> None:
    if zoo.find(subject).weights is None:
        pytest.skip(f"the weights of {subject} are not here")
    cell = nss_cells.layers(subject, 0, 100)
    assert 1 <= len(cell["layers"]) == len(set(cell["layers"])) == len(cell["fdr"]) <= layers
    rows = NssStudy().tables("full", {f"layers/{subject}/0": cell})["tables"]["X: layer"]
    assert [row["ours"] for row in rows] == cell["layers"]


def test_a_few_cells_of_the_nss_study(tmp_path: Path) -> None:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("the weights of mnist-lenet1 are not here")
    cells = {
        f"select/mnist-lenet1/0/{word}": nss_cells.selection("mnist-lenet1", 0, word, 300)
        for word in ("nss", "deepgini", "random")
    }
    cells["shares/mnist-lenet1/0"] = nss_cells.shares("mnist-lenet1", 0, 300)
    cells["layers/mnist-lenet1/0"] = nss_cells.layers("mnist-lenet1", 0, 300)
    cells["sensitivity/mnist-lenet1"] = nss_cells.sensitivity("mnist-lenet1", 300)
    cells["fixed/mnist-lenet1/blur"] = nss_cells.fixed("mnist-lenet1", "blur", 300)
    cells["overhead/mnist-lenet1/deepgini"] = nss_cells.overhead("mnist-lenet1", "deepgini", 300)
    result = NssStudy().tables("quick", cells)
    assert {row["method"] for row in result["tables"]["V: fault detection rate"]} == {"nss", "deepgini", "random"}
    assert len(result["tables"]["IX: share of sensitive neurons"]) == 5
    assert result["checks"]["nss above random at 5%"] > 20
    assert [row["layer"] for row in result["tables"]["X: layer"]] == list(nss_published.LAYERS)
    assert len(result["tables"]["figure 3: sensitivity and strength"]) == 2 * 3 * 5
    for name in ("VI: one mutation for all", "IX: share of sensitive neurons", "X: layer", "figure 3: sensitivity and strength"):
        for row in result["tables"][name]:
            assert row["low"] <= row["value"] <= row["high"], (name, row)
    assert all("random" in row for row in result["tables"]["IX: share of sensitive neurons"])
    row = result["tables"]["V: fault detection rate"][0]
    assert row["paper"] == 81.8
    assert row["low"] <= row["value"] <= row["high"]
    json.dumps(result, allow_nan=False)


def test_cells_in_processes_of_their_own_hold_the_same() -> None:
    """Functions of the standard library, because a new process cannot import this file."""
    cells = [frame.cell(f"{n}", pow, n, 2) for n in range(5)] + [frame.cell("bad", registry.find, "study", "nothing")]
    serial = {cell.key: value for cell, value, _ in contents(cells)}
    assert {key: serial[key] for key in "01234"} == {str(n): n * n for n in range(5)}
    assert "nothing" in serial["bad"][frame.ABSENT]
    with workers(2):
        assert {cell.key: value for cell, value, _ in contents(cells)} == serial


@pytest.mark.slow
def test_a_process_that_dies_is_said_and_nothing_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(multiprocessing.active_children())
    with workers(2), refused("worker-lost"):
        list(contents([frame.cell("dies", os._exit, 1), frame.cell("waits", signal.pause)]))
    assert set(multiprocessing.active_children()) <= before
    monkeypatch.setattr(interrupts._state, "requested", False)
    wait = Processes.wait

    def ask_to_stop(executor: Processes, busy: list[Process], seconds: float) -> list[Process]:
        """As soon as somebody is at work."""
        ready = wait(executor, busy, seconds)
        if ready:
            interrupts._state.requested = True
        return ready

    monkeypatch.setattr(Processes, "wait", ask_to_stop)
    with workers(2), pytest.raises(KeyboardInterrupt):
        list(contents([frame.cell(str(n), signal.pause) for n in range(4)]))
    monkeypatch.setattr(interrupts._state, "raised", False)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_an_absent_cell_is_tried_again_in_processes_too(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "waiting", paper="", cost="")(Waiting)
    try:
        with workers(2):
            first = run_study("waiting", out=tmp_path / "run")
        assert first["tables"]["not rerun"][-1]["what"] == "b"
        Waiting.exists = True
        with workers(2):
            again = run_study("waiting", resume=tmp_path / "run")
        assert again["tables"]["all"] == [{"cell": "a"}, {"cell": "b"}]
    finally:
        registry._entries["study"].pop("waiting")


class Waiting(Study):
    """A cell that cannot be computed until something is there."""

    subjects = Subjects((), ())
    exists = False

    def each_cell(self, scale: str) -> list[Cell]:
        second = frame.cell("b", str, "here") if self.exists else frame.cell("b", registry.find, "study", "nothing")
        return [frame.cell("a", str, "here"), second]

    def results(self, scale: str, done: dict[str, Any]) -> Any:
        return {"all": [{"cell": key} for key in done]}, {}
