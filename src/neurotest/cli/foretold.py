"""What adaptive methods tell beside their picks: what the pool looks like, what was promised, what each round held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurotest.select.selection import Comparison

ROWS = 8  # rounds of a table
LEAST = 0.005  # shares below are left out of the table


def tell_prior(selections: Comparison) -> None:
    """Once for all methods that share it."""
    from neurotest.cli import show

    priors = [s.details["prior"] for s in selections.values() if "shares" in s.details.get("prior", {})]
    if not priors:
        return
    prior = priors[0]
    shares = sorted(prior["shares"].items(), key=lambda item: -item[1])
    rows = [[name, f"{100 * share:.0f} %"] for name, share in shares if share >= LEAST]
    words = f", roughly: of {prior['training_images']} training images only" if prior.get("rough") else ""
    show.table(f"what the pool looks like, without a label{words}", ["change", "share"], rows)
    if prior["looks_natural"]:
        print("expected gain over deepgini before the first label: none, the pool looks natural; the start is deepgini's order")
    else:
        print(f"expected gain over deepgini before the first label: {100 * prior['expected_gain']:+.1f} points")


def tell_rounds(selections: Comparison) -> None:
    """What each round of an adaptive method promised, held, and gained over DeepGini so far."""
    from neurotest.cli import show

    for name, selection in selections.items():
        rounds: list[dict[str, Any]] = list(selection.details.get("rounds", ()))
        if not rounds:
            continue
        before = [0, *(r["faults"] for r in rounds)]
        step = -(-len(rounds) // ROWS)
        rows = [
            [str(i + 1), str(r["labels"]), f"{100 * r['expected']:.0f} %", f"{100 * (r['faults'] - before[i]) / r['size']:.0f} %",
             f"{r['faults']}", f"{r['deepgini']:.0f}", f"{100 * (r['faults'] - r['deepgini']) / max(r['labels'], 1):+.1f}"]
            for i, r in enumerate(rounds) if (i + 1) % step == 0 or i in (0, len(rounds) - 1)
        ]  # fmt: skip
        columns = ["round", "labels", "expected", "measured", "faults so far", "deepgini's", "gain in points"]
        show.table(f"{name}: faults of each round, and the gain so far over deepgini as its labels tell", columns, rows)
