"""The notebook of the docs, executed as a user would: every cell runs and shows what the stored one shows."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from neurotest import zoo

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def notebook() -> Any:
    spec = importlib.util.spec_from_file_location("docs_notebook", DOCS / "_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(cell: Any) -> list[list[str]]:
    shown = [output for output in cell["outputs"] if output.get("name") != "stderr"]
    return [sorted(output.get("data", [output.get("name", "")])) for output in shown]


@pytest.mark.skipif(not zoo.find("fashion-lenet1").embedded, reason="the embedded networks were removed")
def test_every_cell_runs_and_shows_what_is_stored(notebook: Any, tmp_path: Path) -> None:
    stored = [cell for cell in json.loads((DOCS / "notebook.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    now = [cell for cell in notebook.executed(tmp_path).cells if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in now] == ["".join(cell["source"]) for cell in stored]
    assert [kinds(cell) for cell in now] == [kinds(cell) for cell in stored]
    views = [output["data"]["text/html"] for cell in now for output in cell["outputs"] if "text/html" in output.get("data", ())]
    assert len(views) >= 6
    assert sum("data:image/png" in view for view in views) >= 3
    assert any("at random" in view for view in views)


def test_the_page_holds_code_and_outputs(notebook: Any) -> None:
    page = notebook.markdown()
    assert "```python\nimport neurotest\n" in page
    assert "data:image/png;base64" in page
    assert "Did you mean deepgini?" in page
    assert str(Path.home()) not in page
    assert "/tmp/" not in page
