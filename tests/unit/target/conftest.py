"""Most tests here are about what is read: they open hundreds of networks, each of which would be tried in a new process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neurotest.target.rehearsal import skipped


@pytest.fixture(autouse=True)
def rehearsal() -> Iterator[None]:
    """A module that is about rehearsals has a fixture of this name that does nothing."""
    with skipped():
        yield
