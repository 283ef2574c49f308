"""The runs, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.report.subjects import make


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROTEST_CACHE", str(root / "cache"))
        make(root)
        yield {path.parent.name: path.parent for path in sorted(root.glob("*/run.sqlite"))}
