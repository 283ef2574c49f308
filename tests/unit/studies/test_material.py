"""What lies beside the project: used where it is, refused where it is damaged, said in the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.studies import material
from neurotest.studies.coverage.study import BORROWED, CoverageStudy, here
from neurotest.zoo.architectures import Pixels, ResNet

pytestmark = pytest.mark.skipif(zoo.find(BORROWED).weights is not None, reason=f"{BORROWED} was trained on this machine")


def theirs(name: str) -> str:
    """Our name of a tensor as theirs."""
    first = name.partition(".")[0]
    name = f"{first}1.{name.partition('.')[2]}" if first in ("conv", "norm") else name
    return "module." + name.replace("norm", "bn").replace("stage", "layer").replace("fc", "linear")


def test_somebody_elses_weights_become_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROTEST_MATERIAL", raising=False)
    assert not material.available(BORROWED)
    reasons = dict(CoverageStudy().left_out("quick", {}))
    assert "neurotest zoo train" in reasons["ResNet56"]
    monkeypatch.setenv("NEUROTEST_MATERIAL", str(tmp_path))
    assert not material.available(BORROWED)
    torch.manual_seed(0)
    module = ResNet(9, Pixels(*material.THEIR_PIXELS), projected=False).eval()
    file = tmp_path / "data" / material.CHECKPOINTS[BORROWED][0]
    file.parent.mkdir(parents=True)
    state = {theirs(k): v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
    torch.save({"state_dict": state, "best_prec1": 93.0}, file)
    assert material.available(BORROWED)
    assert [part.subject for part in here("quick")].count(BORROWED) == 1
    target = material.network(BORROWED)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(target.logits(x), module(x))
    assert file.name in str(target.spec)
    reasons = dict(CoverageStudy().left_out("quick", {}))
    assert "--only" in reasons["ResNet56"]
    done = {f"suite/{BORROWED}/0/pgd/0.1/none/0": {}}
    assert file.name in dict(CoverageStudy().left_out("quick", done))["ResNet56, trained by us"]
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(BadInput, match=f"no checkpoint of {BORROWED}"):
        material.network(BORROWED)
