"""Adaptive selection: people label in rounds, and each round learns from the labels before it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurotest.select.adaptive.learning import Loop as Loop
    from neurotest.select.adaptive.selector import Adaptive as Adaptive
    from neurotest.select.adaptive.selector import loop as loop

__all__ = ["Adaptive", "Loop", "loop"]


def __getattr__(name: str) -> Any:
    """Resolved when first used: every selection looks at the proposals of a run, few learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from neurotest.select.adaptive import selector

    return getattr(selector, name)
