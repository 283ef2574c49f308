"""What the live page says of a campaign and of a fault in words: cautions, budgets, units, oracles."""

from __future__ import annotations

import re

from neurotest import registry
from neurotest.campaign.believed import sentence
from neurotest.campaign.status import believed_of
from neurotest.generate.fuzz.mutants import Tally
from neurotest.mutate.chain import Chain, words
from neurotest.runs.store import Run

CAUTION = (
    "A fault says that the network's answer changed, or is not the seed's label. Whether a person would still give the picture "
    "that label is for you to see."
)
BUDGETS = {
    "iterations": "turns of seeds", "forwards": "forward passes", "seconds": "seconds", "outputs": "outputs", "faults": "faults",
}  # fmt: skip
DEGREES = re.compile(r"(\brotation -?[\d.e+-]+)")
MOVES = re.compile(r"(\b(?:translation|shift) -?[\d.e+-]+ -?[\d.e+-]+)")
LEVELS = re.compile(r"(\bbrightness )(-?[\d.e+-]+)")


def caution(run: Run) -> str:
    """What faults do not say, as the report has it, and what share of them is believed valid, where the run tells."""
    judged = sentence(believed_of(run))
    return f"{CAUTION} Judged without a person, {judged}." if judged else CAUTION


def random_words(tally: Tally, control: Tally) -> str:
    """How much the control has looked at."""
    if tally.forwards == control.forwards:
        return "with as many forward passes"
    return f"with {control.forwards:,} forward passes"


def budget_words(run: Run, tally: Tally) -> list[tuple[str, str]]:
    """How much of each limit is spent: (name, share)."""
    budget = run["budget"] if "budget" in run else run["config"].get("budget")
    counts = tally.counts()
    limits = budget.items() if isinstance(budget, dict) else ()
    return [
        (f"of the budget: {counts[name]:,.0f} of {limit:,.0f} {BUDGETS[name]}", f"{min(1.0, counts[name] / limit):.0%}")
        for name, limit in limits
        if name in BUDGETS and name in counts and isinstance(limit, int | float) and limit > 0
    ]


def change_words(run: Run, chain: Chain) -> str:
    """A chain with its units: degrees in every set of mutations; levels of 255 and pixels where it counts them."""
    text = DEGREES.sub(r"\1°", words(chain))
    options = run["config"].get("options")
    mutations = str(options.get("mutations", "")) if isinstance(options, dict) else ""
    if mutations.startswith(("rules", "deephunter")):
        text = MOVES.sub(r"\1 of the size" if "units=image" in mutations else r"\1 pixels", text)
        text = LEVELS.sub(r"\1\2 of 255", text)
    return text


def judged_by(oracle: str) -> str:
    """An oracle and what it says of a fault."""
    name = re.split(r"[:(]", oracle, maxsplit=1)[0]
    if name not in registry.names("oracle"):
        return oracle
    first = re.split(r"[:;.](?:\s|$)", registry.find("oracle", name).summary, maxsplit=1)[0]
    return f"{oracle}: {first[:1].lower()}{first[1:]}"
