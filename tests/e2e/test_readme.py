"""The README's Python is run as it stands, in order, in an empty folder with the files it names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

README = Path(__file__).parents[2] / "README.md"
MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 24 * 24, 10))
"""


def test_the_jobs_in_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    Path("my_model.py").write_text(MODEL)
    names: dict[str, object] = {}
    exec(MODEL, names)
    save_file(names["build"]().state_dict(), "my_model.safetensors")  # type: ignore[operator]
    Path("photos").mkdir()
    random = np.random.default_rng(0)
    for number in range(210):
        Image.fromarray(random.integers(0, 256, (28, 28), dtype=np.uint8)).save(f"photos/{number:03}.png")
    blocks = [b for b in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if not b.startswith("# my_model.py")]
    assert len(blocks) == 5
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace("nss-pool@0", "nss-pool@0[:400]"), "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert "nss" in printed
    assert "operator" in printed
    assert (tmp_path / "runs/photos/selection.csv").is_file()
    assert (tmp_path / "fashion-lenet5-profile.json").is_file()
