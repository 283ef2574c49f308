"""How a campaign stands, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neurotest.campaign.api import campaign_config
from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Tally
from neurotest.runs import lock
from neurotest.runs.store import Run


def tally_of(run: Run) -> Tally:
    """The counters of the last committed batch."""
    try:
        return Tally.read(run["progress"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            "damaged", "counters", f"{run.path} holds no counters of a campaign: it is damaged or no campaign."
        ) from None


def control_of(run: Run) -> Tally | None:
    """Those of its control; None if there is none."""
    try:
        counters = run["progress"].get("control")
        return None if counters is None else Tally.read(counters)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput("damaged", "control", f"{run.path} holds damaged counters of a control.") from None


def believed_of(run: Run) -> dict[str, Any] | None:
    """What share of its faults is believed to be valid, as of its last snapshot; None in runs that do not tell."""
    if "believed valid" not in run or not isinstance(believed := run["believed valid"], dict):
        return None
    return believed


def status(path: Path | str) -> dict[str, Any]:
    """State, counters and budget of a campaign."""
    with Run.open(path) as run:
        config = campaign_config(run)
        tally, control = tally_of(run), control_of(run)
        state = "running" if lock.is_locked(run.path) else "done" if run["state"] == "done" else "unfinished"
        return {
            "run": str(run.path),
            "state": state,
            "target": config.get("target"),
            "guide": " + ".join(dict.fromkeys(map(str, config["guides"]))) if "guides" in config else config.get("guide"),
            "budget": run["budget"] if "budget" in run else config.get("budget"),
            "families": len(tally.families),
            "roots": len(tally.roots),
            "unseen": tally.unseen,
            "believed_valid": believed_of(run),
            **tally.counts(),
            "random": control and {**control.counts(), "families": len(control.families), "roots": len(control.roots)},
        }
