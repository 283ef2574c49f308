"""Commands on pages name a target of one's own as the run had it."""

from __future__ import annotations

from neurotest.jobs.stored import described
from neurotest.report.section import command


def test_a_network_of_ones_own_keeps_its_options() -> None:
    description = {
        "weights": "/w w.pt", "mean": [0.5, 0.25], "std": [1, 2], "size": [2, 8, 8], "bounds": [0.0, 1.0], "outputs": "logits",
        "classes": ["a", "b"], "resize": "64", "crop": None,
    }  # fmt: skip
    words = described({"target": "py:net.py:build", "description": description})
    text = (
        "neurotest select py:net.py:build --weights '/w w.pt' --resize 64 --mean 0.5,0.25 --std 1,2 --size 2x8x8 --classes FILE"
    )
    assert command("select", "py:net.py:build", *words) == text
    other = {"outputs": "regression", "span": [-0.4, 0.4], "bounds": [-1, 1]}
    expected = ["--outputs", "regression", "--bounds", "-1", "1", "--span", "-0.4", "0.4"]
    assert described({"target": "py:net.py:build", "description": other}) == expected


def test_a_network_of_the_zoo_needs_none() -> None:
    assert described({"target": "zoo:mnist-lenet1", "description": {"mean": [0.5]}}) == []
    assert described({"target": "py:net.py:build"}) == []
