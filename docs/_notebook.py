"""The notebook of the docs: executed into itself by this script, shown as a page by the hooks.

python docs/_notebook.py        # after a change: run every cell and store what it gives
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("notebook.ipynb")


def executed(folder: Path | str, path: Path = NOTEBOOK) -> Any:
    """The notebook with the outputs of a new kernel that works in `folder`; a cell that fails raises."""
    import nbformat
    from nbclient import NotebookClient

    content = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    sources = {"PYTHONPATH": str(path.resolve().parents[1] / "src"), "NEUROTEST_CACHE": str(Path(folder) / "cache")}
    client = NotebookClient(content, timeout=600, startup_timeout=600, kernel_name="python3")
    client.execute(cwd=str(folder), env={**os.environ, **sources})
    for cell in content.cells:
        cell.metadata.pop("execution", None)  # clocks
    return content


def markdown(path: Path = NOTEBOOK) -> str:
    """The notebook as a page: texts as they are, code in blocks, each output below its code."""
    parts = [f"*This page is a notebook: [{path.name}]({path.name}), with the outputs it gave.*"]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return '<div class="output">' + "".join(data["text/html"]).replace("\n", " ") + "</div>"
    if output.get("name") == "stderr":
        return ""
    text = "".join(output.get("text") or data.get("text/plain") or "").rstrip()
    return f"```text\n{text}\n```" if text else ""


if __name__ == "__main__":
    import tempfile

    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(folder), NOTEBOOK)  # type: ignore[no-untyped-call]
