"""Who found more kinds of faults, the guide or random: families, seeds broken, pairs of classes, at equal forward passes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from neurotest.generate.fuzz.mutants import Key, Tally
from neurotest.stats.comparison import swap_interval

# What is counted of a fault with this family from this seed, and what it is called.
KINDS: dict[str, tuple[str, Callable[[int, Key], Hashable]]] = {
    "families": ("families", lambda root, family: family),
    "seeds": ("seeds broken", lambda root, family: root),
    "pairs": ("(true, predicted) pairs", lambda root, family: family[:2]),
}
LEVEL = 0.05  # of the passes: campaigns that differ by less made equally many


def compare(guided: Tally, control: Tally) -> dict[str, Any] | None:
    """Counts of both up to the forward passes that both made, and what chance alone would put between them.

    None if the campaign was begun by a version that did not keep what the control found, or before both ran.
    """
    if guided.first is None or control.first is None or not guided.forwards or not control.forwards or guided is control:
        return None
    passes = min(guided.forwards, control.forwards)
    equal = max(guided.forwards, control.forwards) - passes <= LEVEL * passes
    sides = [
        [fault for fault, forwards in tally.first.items() if equal or forwards <= passes]
        for tally in (guided, control)
        if tally.first is not None
    ]
    verdict: dict[str, Any] = {"forwards": passes}
    for name, (_, kind) in KINDS.items():
        result = swap_interval(*([(root, kind(root, family)) for root, family in side] for side in sides))
        more = {"left": "guide", "right": "random", None: None}[result.larger]
        verdict[name] = {
            "guide": result.left, "random": result.right, "difference": result.difference,
            "by_chance": [result.low, result.high], "more": more,
        }  # fmt: skip
    return verdict


def sentence(verdict: dict[str, Any] | None, faults: tuple[int, int] | None = None) -> str:
    """Who wins which; `faults` of both come last, because many may be of one kind."""
    if not verdict:
        return ""
    parts = []
    for who, name in {
        "guide": "the guide finds more",
        "random": "random finds more",
        None: "no difference beyond chance in",
    }.items():
        kinds = [_words(key, verdict[key]) for key in KINDS if verdict[key]["more"] == who]
        if kinds:
            parts.append(f"{name} {_list(kinds)}")
    tail = f"; faults, of whatever kind: {faults[0]:,} against {faults[1]:,}" if faults else ""
    return f"at {verdict['forwards']:,} forward passes each: {'; '.join(parts)}{tail}"


def _list(kinds: list[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"


def _words(name: str, one: dict[str, Any]) -> str:
    return (
        f"{KINDS[name][0]} ({one['guide']:,} against random's {one['random']:,}; chance: up to {one['by_chance'][1]:.0f} apart)"
    )
