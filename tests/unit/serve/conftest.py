"""An adaptive selection that waits for labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.serve.subjects import adaptive_run


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    return adaptive_run(tmp_path)
