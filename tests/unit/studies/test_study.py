"""Studies: cells are computed once, kept, and tables are made of what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neurotest import registry, zoo
from neurotest.errors import BadInput
from neurotest.studies import nss, nss_cells, nss_published
from neurotest.studies.study import Cell, run_study

made: list[str] = []


class Counting:
    """Two cells; the second one fails the first time."""

    fails = True

    def cells(self, scale: str) -> list[Cell]:
        return [Cell("a", lambda: made.append("a") or 1), Cell("b", self._b)]  # type: ignore[func-returns-value]

    def _b(self) -> int:
        made.append("b")
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
        found = run_study("counting", resume=tmp_path / "run")
        assert made == ["a", "b", "b"]
        assert found["tables"]["all"] == [{"cell": "a", "value": 1}, {"cell": "b", "value": 2}]
        assert found["missing"] == []
        with pytest.raises(BadInput, match="is a run of the study counting"):
            run_study("nss", resume=tmp_path / "run")
    finally:
        registry._entries["study"].pop("counting")


class Asking:
    """One cell, and one more for who asks for it."""

    def cells(self, scale: str) -> list[Cell]:
        return [Cell("a", lambda: 1), Cell("more/b", lambda: 2, asked=True)]

    tables = Counting.tables


def test_a_cell_that_must_be_asked_for(tmp_path: Path) -> None:
    registry.entries("study")
    registry.register("study", "asking", paper="", cost="")(Asking)
    try:
        plain = run_study("asking", out=tmp_path / "run")
        assert (plain["checks"], plain["missing"]) == ({"cells": 1}, [])
        assert run_study("asking", resume=tmp_path / "run", only="more/")["checks"] == {"cells": 2}
        assert run_study("asking", resume=tmp_path / "run")["checks"] == {"cells": 2}
    finally:
        registry._entries["study"].pop("asking")


def test_a_scale_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="quick or full"):
        run_study("nss", "huge", out=tmp_path / "run")


def test_tables_of_nothing_still_say_what_is_not_rerun() -> None:
    found = nss.NssStudy().tables("quick", {})
    assert any("SVHN" in row["what"] for row in found["tables"]["not rerun"])
    assert found["checks"] == {}
    json.dumps(found, allow_nan=False)


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
    rows = nss.NssStudy().tables("full", {f"layers/{subject}/0": cell})["tables"]["X: layer"]
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
    found = nss.NssStudy().tables("quick", cells)
    assert {row["method"] for row in found["tables"]["V: fault detection rate"]} == {"nss", "deepgini", "random"}
    assert len(found["tables"]["IX: share of sensitive neurons"]) == 5
    assert found["checks"]["nss above random at 5%"] > 20
    assert [row["layer"] for row in found["tables"]["X: layer"]] == list(nss_published.LAYERS)
    assert len(found["tables"]["figure 3: sensitivity and strength"]) == 2 * 3 * 5
    for name in ("VI: one mutation for all", "IX: share of sensitive neurons", "X: layer", "figure 3: sensitivity and strength"):
        for row in found["tables"][name]:
            assert row["low"] <= row["value"] <= row["high"], (name, row)
    assert all("random" in row for row in found["tables"]["IX: share of sensitive neurons"])
    row = found["tables"]["V: fault detection rate"][0]
    assert row["paper"] == 81.8
    assert row["low"] <= row["value"] <= row["high"]
    json.dumps(found, allow_nan=False)
