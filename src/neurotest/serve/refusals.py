"""Why a request is not answered; each is a sentence, and a status of HTTP."""

from __future__ import annotations

from neurotest.errors import BadInput


class Taken(BadInput):
    """Somebody else has, or had, this input."""


class Missing(BadInput):
    """The run has no such thing."""
