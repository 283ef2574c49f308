"""Refusals are checked by their code and argument: sentences may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from neurotest.errors import CODES, BadInput


@contextmanager
def refused(
    code: str | tuple[str, ...], argument: str | None = "", *, match: str | None = None, kind: type[BadInput] = BadInput
) -> Iterator[pytest.ExceptionInfo[BadInput]]:
    """What is inside raises a refusal of this code (or one of these) and this argument (None: any).

    match: a piece of the sentence, where code and argument are those of another refusal nearby, or a value in it is tested.
    """
    codes = (code,) if isinstance(code, str) else code
    assert set(codes) <= set(CODES), codes
    with pytest.raises(kind, match=match) as info:
        yield info
    error = info.value
    assert error.code in codes, str(error)
    assert argument is None or error.argument == argument, str(error)
