"""What a selection writes down, and what it knows of training data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

import neurotest
from neurotest import zoo
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput, Interrupted
from neurotest.runs.store import Run
from neurotest.select import compare, select
from neurotest.zoo import embedded

from .subjects import exact_pool, images, mutated_pool, target

pytestmark = pytest.mark.plain

# -- training data


def test_candidates_that_stand_in_the_training_data_are_pointed_out() -> None:
    train = ArraySource(np.concatenate([images()[[3, 17]], images(5, seed=9)]))
    assert select(target(), exact_pool(), "deepgini", 5, train=train).in_training == (3, 17)
    assert select(target(), exact_pool(), "deepgini", 5).in_training == ()


def test_a_network_of_the_zoo_knows_its_training_data() -> None:
    try:
        pool = neurotest.data("zoo:mnist/train[:60]")
        selection = select("zoo:mnist-lenet1", pool, "deepgini", "10%")
    except BadInput as error:
        pytest.skip(f"MNIST or its network was removed from this copy: {error}")
    assert selection.in_training == tuple(range(60))
    assert select("zoo:mnist-lenet1", "zoo:mnist/test[:60]", "deepgini", "10%").in_training == ()


def test_a_removed_training_set_does_not_stop_a_network_of_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("mnist-lenet1 has no weights in this copy")
    monkeypatch.setattr(embedded, "packaged", lambda name: None)
    pool = ArraySource(np.zeros((5, 1, 28, 28), np.uint8))
    assert select("zoo:mnist-lenet1", pool, "deepgini", 2).in_training == ()
    with refused("not-found", "data"):
        select("zoo:mnist-lenet1", pool, "deepgini", 2, train="zoo:mnist/train")


# -- runs


def test_a_run_holds_everything(tmp_path: Path) -> None:
    source = mutated_pool()
    selections = compare(target(classes=["a", "b", "c"]), source, ["nss", "deepgini"], 6, out=tmp_path / "run", files=4)
    with Run.open(tmp_path / "run") as run:
        assert run["state"] == "done"
        assert run["config"]["fingerprint"] == target().fingerprint
        assert run["classes"] == ["a", "b", "c"]
        assert [row.name for row in run.methods()] == ["nss", "deepgini"]
        for method, selection in selections.items():
            rows = run.ranking(method)
            assert [row.position for row in rows] == selection.order.tolist()
            assert [row.score for row in rows] == selection.all_scores[selection.order].tolist()
            assert sum(row.picked for row in rows) == 6
            assert run["summary"]["methods"][method]["fdr"] == selection.to_dict()["fdr"]
        inputs = run.inputs()
        assert [row.content for row in inputs] == source.ids().tolist()
        assert [row.label for row in inputs] == source.labels.tolist()
        assert inputs[5].extra["draw"] == source.notes["draws"].describe(5)
        stored = {row.position for row in run.files("picked")}
        assert stored == {int(i) for selection in selections.values() for i in selection.indices[:4]}
        for position in stored:
            assert np.array_equal(run.load_input(position), source.read(np.array([position]))[0])
            assert np.array_equal(run.load_input(position, "original"), source.originals.read(np.array([position]))[0])
    assert selections["nss"].run == tmp_path / "run"


def test_a_run_exports_csv_and_json(tmp_path: Path) -> None:
    selection = select(target(), mutated_pool(), "deepgini", 6, out=tmp_path / "run")
    with open(tmp_path / "run" / "selection.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["position"]) for row in rows] == selection.order.tolist()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "done"


def test_an_exact_float_pool_is_stored_exactly(tmp_path: Path) -> None:
    selection = select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        for position in selection.indices.tolist():
            assert np.array_equal(run.load_input(position), images()[position])


def test_without_out_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    select(target(), exact_pool(), "deepgini", 3)
    assert not list(tmp_path.iterdir())
    selection = select(target(), exact_pool(), "deepgini", 3, out=None)
    assert selection.run is not None
    assert (selection.run / "run.sqlite").is_file()


def test_a_place_that_cannot_be_written_to_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    network = target()
    network.survey()
    network.module._seen = 0
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with refused("not-a-folder", "out"):
            select(network, exact_pool(), "deepgini", 3, out=place)
    assert network.module._seen <= 16  # only the look at four inputs for each place, and two for equal answers


def test_an_existing_run_is_refused(tmp_path: Path) -> None:
    select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")
    with refused("exists", "run"):
        select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run")


def test_a_selection_that_fails_leaves_no_run(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="nothing was kept"):
        select(target(), exact_pool(), "deepgini", 3, out=tmp_path / "run", batch=10, progress=stop)
    assert not (tmp_path / "run").exists()
