"""`neurotest init`: what is seen of a network and its data, and a file that every command understands."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from neurotest.cli.settings_file import read_toml
from neurotest.data.spec import data
from neurotest.doctor.proposal import Proposal, propose
from neurotest.scan import fit, read
from neurotest.settings.target import in_toml
from neurotest.target.load import load

NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3), nn.{end}).eval()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.savez("float.npz", x=random.uniform(0, 255, (20, 3, 4, 4)).astype(np.float32), y=random.integers(0, 3, 20))
    np.savez("eight.npz", x=random.integers(0, 256, (20, 3, 4, 4), dtype=np.uint8), y=random.integers(0, 3, 20))
    Path("logits.py").write_text(NETWORK.format(end="Identity()"))
    Path("probs.py").write_text(NETWORK.format(end="Softmax(1)"))
    return tmp_path


@pytest.mark.parametrize(
    ("network", "inputs", "said"),
    [
        ("logits", "eight", {"size"}),
        ("logits", "float", {"size", "bounds"}),
        ("probs", "eight", {"size", "outputs"}),
        ("probs", "float", {"size", "bounds", "outputs"}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_command_needs_no_further_options(folder: Path, network: str, inputs: str, said: set[str]) -> None:
    spec, source = f"py:{network}.py:build", f"npz:{inputs}.npz#x,y"
    proposal = propose(spec, source)
    Path("neurotest.toml").write_text(proposal.toml(spec, source))
    content = read_toml(Path("neurotest.toml"))
    assert set(content) == said
    assert proposal.classes == 3
    target = load(spec, **content)
    assert fit(target, read(target, data(source))) == 3
    if "bounds" in said:
        assert content["bounds"] == [0.0, 255.0]
    if "outputs" in said:
        assert content["outputs"] == "probs"


@pytest.mark.filterwarnings("ignore")
def test_options_are_kept_and_what_the_network_says_is_a_comment(folder: Path) -> None:
    proposal = propose("py:logits.py:build", mean=[0.5, 0.5, 0.5], std=[0.2, 0.2, 0.2], size="3x4x4")
    text = proposal.toml("py:logits.py:build", None)
    assert tomllib.loads(text) == {"target": {"mean": [0.5] * 3, "std": [0.2] * 3, "size": "3x4x4"}, "data": {}}
    zoo = propose("zoo:fashion-lenet5").toml("zoo:fashion-lenet5", "zoo:fashion-mnist/test")
    assert tomllib.loads(zoo) == {"target": {}, "data": {}}
    assert '# size = "1x28x28"' in zoo
    assert all(f"{key} =" in zoo for key in in_toml())


@pytest.mark.filterwarnings("ignore")
def test_data_are_written_as_typed_and_folders_that_are_called_so_as_comments(folder: Path) -> None:
    spec, given = "py:logits.py:build", {"train": "npz:eight.npz#x,y[:9]"}
    (folder / "val").mkdir()
    text = propose(spec, others=given, size="3x4x4").toml(spec, None)
    assert tomllib.loads(text)["data"] == given
    assert '# holdout = "dir:val"' in text
    Path("neurotest.toml").write_text(text)
    assert read_toml(Path("neurotest.toml"), "data") == given
    with refused("not-found", "data"):
        propose(spec, others={"train": "npz:absent.npz#x,y"}, size="3x4x4")


@pytest.mark.parametrize("folder_name", ["fotos-\U0001f600", "\u00fcbung", 'a"b', "a\x7fb", "a\\b"])
def test_any_name_can_be_read_back(folder_name: str) -> None:
    others = {"train": f"dir:{folder_name}"}
    assert tomllib.loads(Proposal({}, {}, None, others).toml("zoo:x", None))["data"] == others


@pytest.mark.filterwarnings("ignore")
def test_names_cannot_become_settings(folder: Path) -> None:
    proposal = propose("py:logits.py:build", size="3x4x4", classes=['a"\nweights = "x', "b", "c"])
    text = proposal.toml('x\nweights = "evil.pt"', 'y\n[target]\nweights = "evil.pt"')
    assert set(tomllib.loads(text)["target"]) == {"size", "classes"}
    assert tomllib.loads(text)["target"]["classes"][0] == 'a"\nweights = "x'


def test_data_that_do_not_fit_are_refused(folder: Path) -> None:
    np.savez("other.npz", x=np.zeros((4, 3, 5, 5), np.uint8))
    with refused("failed", "network"):
        propose("py:logits.py:build", "npz:other.npz")
