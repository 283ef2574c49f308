"""Optional packages: named with the command that installs them; torchvision beside a torch it was not built for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from neurotest.errors import BadInput
from neurotest.target.extras import guarded_torchvision, need

pytestmark = pytest.mark.plain


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(BadInput, match=r"timm:net needs no_such_package: pip install 'neurotest\[models\]'"):
        need("no_such_package", "models", "timm:net")


def test_a_package_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    with pytest.raises(BadInput, match=r"installed but cannot be imported \(operator torchvision::nms"):
        need("broken_package", "models", "timm:net")
    (tmp_path / "half_package.py").write_text("import no_such_package")
    with pytest.raises(BadInput, match=r"half_package lacks no_such_package: pip install"):
        need("half_package", "hf", "hf:folder")


FAKE = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
asked = torch.ops.torchvision.nms, torch.ops.torchvision.qnms
"""


@pytest.mark.parametrize("content", [FAKE, "asked = ()"], ids=["built for another torch", "built for this one"])
def test_torchvision_is_imported_behind_the_guard(content: str, tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(content)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from neurotest.target.extras import guarded_torchvision, _operators\n"
        "guarded_torchvision(); guarded_torchvision()\n"
        "import torchvision; print(len(torchvision.asked), len(_operators))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == (["2", "1"] if content == FAKE else ["0", "0"]), done.stderr


def test_nothing_is_imported_where_torchvision_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    guarded_torchvision()
    assert "torchvision" not in sys.modules
