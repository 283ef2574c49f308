"""Commands on pages name a target of one's own as the run had it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refused
from torch import nn

from neurotest.jobs.stored import described, target_config
from neurotest.report.section import command
from neurotest.target import Target


def test_a_network_of_ones_own_keeps_its_options() -> None:
    description = {
        "weights": "/w w.pt", "mean": [0.5, 0.25], "std": [1, 2], "size": [2, 8, 8], "bounds": [0.0, 1.0], "outputs": "logits",
        "classes": ["a", "b"], "resize": "64", "crop": None,
    }  # fmt: skip
    config = {"target": "py:net.py:build", "description": description}
    said = "--weights '/w w.pt' --mean 0.5,0.25 --std 1,2 --size 2x8x8 --classes 'my run' --resize 64"
    text = f"neurotest select py:net.py:build {said}"
    assert command("select", "py:net.py:build", *described(config, Path("my run"))) == text
    assert "--classes" not in described(config, None)
    other = {"outputs": "regression", "span": [-0.4, 0.4], "bounds": [-1, 1]}
    expected = ["--bounds", "-1", "1", "--outputs", "regression", "--span", "-0.4", "0.4"]
    assert described({"target": "py:net.py:build", "description": other}, None) == expected


def test_a_target_that_was_never_stored() -> None:
    target = Target(nn.Flatten(), bounds=(-1.0, 1.0), shape=(1, 2, 2))
    assert described(target_config(target), None)[:3] == ["--bounds", "-1", "1"]


def test_a_run_cannot_have_people_trust_it() -> None:
    config = {"target": "pt2:/sent.pt2", "description": {"trust_pickle": True, "device": "cuda", "mean": [0.5]}}
    assert described(config, None) == ["--mean", "0.5"]


@pytest.mark.parametrize("description", [{"bounds": 5}, {"mean": "0.5"}, {"classes": "/etc/passwd"}])
def test_a_damaged_description_is_named(description: dict[str, Any]) -> None:
    with refused("damaged", next(iter(description))):
        described({"target": "pt2:/sent.pt2", "description": description}, Path("run"))


def test_numbers_keep_all_their_digits() -> None:
    config = {"target": "py:net.py:build", "description": {"mean": [0.12345678912345678, 1e-9]}}
    assert described(config, None) == ["--mean", "0.12345678912345678,1e-09"]


def test_a_network_of_the_zoo_needs_none() -> None:
    assert described({"target": "zoo:mnist-lenet1", "description": {"mean": [0.5]}}, None) == []
    assert described({"target": "py:net.py:build"}, None) == []
