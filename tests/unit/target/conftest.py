"""Most tests here are about what is read: they open hundreds of networks, each of which would be tried in a new process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neurotest.target.rehearsal import skipped


@pytest.fixture(autouse=True)
def no_rehearsal() -> Iterator[None]:
    """A module that is about rehearsals has another fixture of this name."""
    with skipped():
        yield
