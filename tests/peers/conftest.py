"""Networks from files are compared here; what tries each of them in a process of its own first is tested elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neurotest.target.rehearsal import skipped


@pytest.fixture(autouse=True)
def no_rehearsal() -> Iterator[None]:
    """Each would take seconds, and there are hundreds; `unit/target/test_rehearsal.py` has those that count."""
    with skipped():
        yield
