"""Refusals are checked by their code and argument: sentences may change."""

from __future__ import annotations

from types import TracebackType

import pytest

from neurotest.errors import CODES, BadInput


class refused:
    """What is inside raises a refusal of this code (or one of these) and this argument (None: any).

    match: a piece of the sentence, where code and argument are those of another refusal nearby, or a value in it is tested.
    """

    def __init__(
        self,
        code: str | tuple[str, ...],
        argument: str | None = "",
        *,
        match: str | None = None,
        kind: type[BadInput] = BadInput,
    ) -> None:
        self.codes = (code,) if isinstance(code, str) else code
        assert set(self.codes) <= set(CODES), self.codes
        self.argument, self._raises = argument, pytest.raises(kind, match=match)

    def __enter__(self) -> pytest.ExceptionInfo[BadInput]:
        self.info = self._raises.__enter__()
        return self.info

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        expected = self._raises.__exit__(kind, error, trace)
        if expected:
            refusal = self.info.value
            assert refusal.code in self.codes, f"{refusal.code!r}, {refusal.argument!r}: {refusal}"
            assert self.argument in (None, refusal.argument), f"{refusal.code!r}, {refusal.argument!r}: {refusal}"
        return expected
