"""A finished run in MLflow's file store and in W&B's offline files, read back from there."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import neurotest

SELECT = ["select", "zoo:mnist-lenet1", "zoo:mnist/test[:60]", "--method", "deepgini", "--budget", "6"]


def neurotest_command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "neurotest", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)


def numbers_of(run: Path) -> dict[str, Any]:
    summary = json.loads((run / "run.json").read_text())["summary"]["methods"]["deepgini"]
    return {"methods.deepgini.fdr": summary["fdr"], "methods.deepgini.fdr_interval.1": summary["fdr_interval"][1]}


@pytest.mark.peer("mlflow")
def test_mlflow_holds_numbers_settings_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    store, run = (tmp_path / "store").as_uri(), tmp_path / "run"
    variables = {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = neurotest_command(*SELECT, "--out", str(run), "--track", "mlflow:nightly", "--json", **variables)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(store)
    (stored,) = client.search_runs([client.get_experiment_by_name("nightly").experiment_id])
    assert stored.info.run_id in json.loads(done.stdout)["tracked"]
    assert stored.data.tags["neurotest.command"] == "select"
    assert stored.data.params["target"] == "zoo:mnist-lenet1"
    for name, value in numbers_of(run).items():
        assert stored.data.metrics[name] == value
    files = {file.path for file in client.list_artifacts(stored.info.run_id)}
    assert files == {"run.json", "selection.csv", "report.html"}


@pytest.mark.peer("wandb")
def test_wandb_holds_numbers_and_settings(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run = tmp_path / "run"
    neurotest.select("zoo:mnist-lenet1", "zoo:mnist/test[:60]", "deepgini", budget=6, out=run)
    done = neurotest_command("runs", "track", str(run), "wandb:nightly", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    config, summary = logged(log)
    assert config["target"] == "zoo:mnist-lenet1"
    for name, value in numbers_of(run).items():
        assert summary[name] == value


def logged(log: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and summary of an offline log."""
    from wandb.proto.wandb_internal_pb2 import Record

    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for content in records(log.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
        for item in record.summary.update:
            summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    return config, summary


def records(content: bytes, *, block: int = 1 << 15, head: int = 7) -> Iterator[bytes]:
    """The records of a LevelDB log, which is what W&B writes: pieces of (checksum, length, kind) in blocks, after a header."""
    place, pieces = head, b""
    while place + head <= len(content):
        if block - place % block < head:
            place += block - place % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        pieces += content[place + head : place + head + length]
        place += head + length
        if kind in (1, 4):  # whole, or the last piece
            yield pieces
            pieces = b""


@pytest.mark.peer("mlflow")
def test_a_tracker_that_cannot_be_reached_costs_nothing_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (tmp_path / "file").write_text("no folder")
    place = (tmp_path / "file" / "store").as_uri()
    variables = {"MLFLOW_TRACKING_URI": place, "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = neurotest_command(*SELECT, "--out", str(tmp_path / "run"), "--track", "mlflow", **variables)
    assert done.returncode == 0
    assert "The results are stored; to try again: neurotest runs track" in done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "done"
