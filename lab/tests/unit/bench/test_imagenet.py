"""`bench imagenet`: what it measures, on small inputs."""

from __future__ import annotations

import pytest
import torch

from neurotest_lab.bench import imagenet, run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SHAPE": (3, 32, 32), "IMAGES": 8, "PEAK": 4, "TRAIN": 4, "TRIED": 4, "BARE": (2, 4)}.items():
        monkeypatch.setattr(imagenet, name, value)
    monkeypatch.setattr(imagenet, "keep_freed", lambda: True)  # not in a process that other tests share


def test_the_network_has_the_size_of_efficientnet_lite0() -> None:
    network = imagenet.network()
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008  # as published: 4.65 million
    with torch.inference_mode():
        assert network(torch.rand(1, 3, 64, 64)).shape == (1, 1000)


@pytest.mark.filterwarnings("ignore")
def test_ratios_and_memory(small: None) -> None:
    ratios = run("imagenet", None, repeats=1)
    assert [name.partition(" (")[0] for name in ratios] == [
        "imagenet/photographs/deepgini",
        "imagenet/photographs/kmnc:1000, channel",
    ]
    assert all(ratio.median > 0 for ratio in ratios.values())
    measured = imagenet.largest()
    assert measured["images"] == 4
    assert measured["peak_megabytes"] > 50
