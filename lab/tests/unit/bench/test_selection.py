"""The benchmark of selection: every method has a ratio, memory is counted per input."""

from __future__ import annotations

import numpy as np
import pytest

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest_lab import bench
from neurotest_lab.bench import rounds, selection


def test_generated_inputs_are_a_function_of_their_position() -> None:
    source = selection.Generated(1000)
    x = source.read(np.arange(1000))
    assert np.array_equal(x[[3, 700]], source.read(np.array([3, 700])))
    assert len(np.unique(x.reshape(1000, -1), axis=0)) == 1000


def test_memory_per_input() -> None:
    """64 bytes are allowed."""
    used = selection.memory(30_000)
    assert set(used) == set(selection.COUNTED)
    assert all(0 < one["bytes_per_input"] <= 64 for one in used.values()), used


def test_every_method_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    if not zoo.find("mnist-lenet1").embedded:
        pytest.skip("mnist-lenet1 is not embedded here")
    try:
        data("zoo:mnist/test[:1]")
    except BadInput as error:
        pytest.skip(str(error))
    monkeypatch.setattr(selection, "POOL", 300)
    monkeypatch.setattr(selection, "TRAIN", 100)
    monkeypatch.setattr(selection, "MOST", 150)
    ratios = bench.run("select", ["mnist-lenet1"], repeats=1)
    assert set(ratios) == {f"select/mnist-lenet1/{method}" for method in selection.SCORED}
    assert set(bench.run("select", ["mnist-lenet1"], repeats=1, only=["random"])) == {"select/mnist-lenet1/random"}


def test_a_round_by_itself() -> None:
    """Both kinds of outputs; a batch of 70 is judged within itself, later ones of as many are not."""
    measured = rounds.measure(pool=1500, batch=70, labels=280)
    assert set(measured) == {"10 classes", "1000 classes"}
    assert all(one["seconds"] > 0 for one in measured.values())
    loop = rounds.begun(1500, 1000, 280, 70)
    assert len(loop.labels) == 280
    assert [len(batch) for batch in loop.batches] == [70] * 4
    assert loop.outputs.rank == 16
