"""The benchmark of attacks gives every setting, and its second pass is the same gradient."""

from __future__ import annotations

import pytest

from neurotest import zoo
from neurotest_lab import bench
from neurotest_lab.bench import attack


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    if not zoo.find("mnist-lenet1").embedded:
        pytest.skip("mnist-lenet1 is not embedded here")
    monkeypatch.setitem(attack.IMAGES, "mnist-lenet1", 4)
    ratios = bench.run("attack", ["mnist-lenet1"], repeats=1)
    words = [key.rpartition("/")[2] for key in ratios]
    assert [word.partition(",")[0] for word in words] == ["diversity over plain PGD"] * 4 + [
        "diversity with a second forward pass",
        "a PGD step over a forward pass",
    ]
    assert all(ratio.median > 0 for ratio in ratios.values())
