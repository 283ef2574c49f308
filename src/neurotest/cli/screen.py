"""What a campaign shows while it runs: a screen on a terminal, lines elsewhere, JSON events with --json."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from neurotest.errors import visible

if TYPE_CHECKING:
    from neurotest.campaign.driver import Watched
    from neurotest.generate.fuzz import Mutant

LINES = 5.0  # seconds between lines
FRAMES = 0.5  # and between frames
FEW = 0.02  # chance of a new family below which going on seems idle
ENOUGH = 200  # faults below which it is too early to advise


class Screen:
    """Called after every batch; shows what is new, not too often."""

    def __init__(
        self, *, json: bool, quiet: bool, classes: tuple[str, ...] | None = None, live: bool | None = None,
        started: float | None = None,
    ) -> None:  # fmt: skip
        self.json, self.quiet, self.classes = json, quiet, classes
        self.live = (sys.stderr.isatty() and not json and not quiet) if live is None else live
        self.began = self.shown_at = self.family_at = time.monotonic()
        self.started = self.began if started is None else started  # of the command, by time.monotonic
        self.newest: list[str] = []
        self.first: int | None = None
        self.value: float | None = None
        self._live: Any = None

    def __call__(self, fuzzer: Watched, outputs: list[Mutant], new: list[Mutant]) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.began = self._all(fuzzer), now  # loading and the guide's start are no part of the rate
        if new:
            self.family_at = now
            keys = [mutant.family for mutant in new[-3:]]
            self.newest = [f"{self._pair(true, predicted, 'taken for')} after {operator}" for true, predicted, operator in keys]
        if self.json and not self.quiet:
            for mutant in new:
                self._event("family", family=list(mutant.family), fault=mutant.number, forwards=fuzzer.tally.forwards)
        if self.quiet or now - self.shown_at < (FRAMES if self.live else LINES):
            return
        self.shown_at = now
        self.value = fuzzer.value()
        facts = self.facts(fuzzer)
        if self.json:
            self._event("progress", **facts)
        elif self.live:
            self._show(fuzzer, facts)
        else:
            print(f"neurotest: {self.line(facts)}", file=sys.stderr)

    def facts(self, fuzzer: Watched) -> dict[str, Any]:
        tally, control = fuzzer.tally, fuzzer.control.tally if fuzzer.control else None
        spent = max(time.monotonic() - self.began, 1e-9)
        elapsed = time.monotonic() - self.started
        counts = {**tally.counts(), "seconds": elapsed}
        return {
            "elapsed": round(elapsed, 1),
            "of": {name: [counts[name], most] for name, most in fuzzer.budget.to_dict().items() if name in counts},
            **fuzzer.about(),
            "run": None if fuzzer.path is None else str(fuzzer.path),
            "iterations": tally.iterations,
            "forwards": tally.forwards,
            "per_second": round((self._all(fuzzer) - (self.first or 0)) / spent, 1),
            "outputs": tally.outputs,
            "faults": tally.faults,
            "families": len(tally.families),
            "classes": len({p for p in tally.predicted if p >= 0}),
            "corpus": len(fuzzer.corpus),
            "coverage": self.value,
            "goals": fuzzer.guide.details().get("goals"),
            "expected_goals": fuzzer.guide.expected(),
            "unseen": tally.unseen,
            "since_new_family": round(time.monotonic() - self.family_at, 1),
            "advice": advice(tally.faults, tally.unseen),
            "random": control and {"forwards": control.forwards, "faults": control.faults, "families": len(control.families)},
        }

    @staticmethod
    def _all(fuzzer: Watched) -> int:
        """Forward passes of the campaign and its control: what the machine does."""
        return fuzzer.tally.forwards + (fuzzer.control.tally.forwards if fuzzer.control else 0)

    @staticmethod
    def line(facts: dict[str, Any]) -> str:
        coverage = "" if facts["coverage"] is None or facts.get("goals") else f", coverage {facts['coverage']:.4g}"
        random = facts["random"]
        beside = "" if random is None else f" (random: {random['faults']:,} in {random['families']})"
        return (
            f"{elapsed(facts)}; {_islands_line(facts)}"
            f"{facts['iterations']:,} iterations, {facts['forwards']:,} forwards ({facts['per_second']:,.0f}/s), "
            f"{facts['faults']:,} faults in {facts['families']} families{beside}, {facts['classes']} classes{coverage}; "
            f"{goals_line(facts)}"
            f"last new family {facts['since_new_family']:.0f} s ago; {facts['advice']}"
            + (f"; run: {facts['run']}" if facts["run"] else "")
        )

    def _event(self, event: str, **facts: Any) -> None:
        print(json.dumps({"event": event, **facts}), file=sys.stderr)

    def _pair(self, true: int, predicted: int, word: str) -> str:
        from neurotest.campaign.result import class_name

        return f"{class_name(true, self.classes)} {word} {class_name(predicted, self.classes)}"

    def _show(self, fuzzer: Watched, facts: dict[str, Any]) -> None:
        from rich.live import Live

        from neurotest.cli.show import console

        if self._live is None:
            self._live = Live(console=console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(self.picture(fuzzer, facts), refresh=True)

    def picture(self, fuzzer: Watched, facts: dict[str, Any]) -> Any:
        """The screen as a rich table."""
        from rich.table import Table
        from rich.text import Text

        tally = fuzzer.tally
        grid = Table(title="neurotest fuzz", title_justify="left", show_header=False)
        rates = sorted(((name, tally.operators[name] / n) for name, n in tally.tried.items()), key=lambda rate: -rate[1])
        pairs: Counter[tuple[int, int]] = Counter()
        for (true, predicted, _), n in tally.families.items():
            pairs[(true, predicted)] += n
        coverage, random = "" if facts["coverage"] is None else f"{facts['coverage']:.4g}", facts["random"]
        rows = [
            ("elapsed", elapsed(facts)),
            ("run", facts["run"] or "nothing is written"),
            *([("islands", _islands_line(facts).removesuffix("; "))] if facts.get("islands") else []),
            ("rate", f"{facts['per_second']:,.0f} forwards/s, {facts['forwards']:,} in all, {facts['iterations']:,} iterations"),
            ("found", f"{facts['faults']:,} faults, {facts['families']} families, {facts['classes']} classes"),
            ("random found", "" if random is None else f"{random['faults']:,} faults, {random['families']} families"),
            ("goals", goals_line(facts)),
            ("corpus, coverage", f"{facts['corpus']:,} seeds  {'' if facts['goals'] else coverage}"),
            ("operators that pay", ", ".join(f"{name} {rate:.0%}" for name, rate in rates[:5])),
            ("worst pairs", ", ".join(f"{self._pair(*pair, 'as')} {n}" for pair, n in pairs.most_common(4))),
            ("newest families", "; ".join(self.newest)),
            ("last new family", f"{facts['since_new_family']:.0f} s ago"),
            ("go on?", facts["advice"]),
        ]
        for name, value in rows:
            grid.add_row(Text(name, style="bold"), Text(visible(value)))
        return grid

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def elapsed(facts: dict[str, Any]) -> str:
    """How long it has run, and how far each budget is spent: `1:05, 317 of 3,000 forwards`."""
    minutes, seconds = divmod(int(facts["elapsed"]), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    spent = [f"{min(done, most):,.0f} of {most:,.0f} {name}" for name, (done, most) in facts["of"].items()]
    return ", ".join([clock, *spent])


def _islands_line(facts: dict[str, Any]) -> str:
    """Islands, rounds and workers; empty for a campaign that has one island."""
    if not facts.get("islands"):
        return ""
    return f"{facts['islands']} islands on {facts['workers']} worker{'s' * (facts['workers'] > 1)}, round {facts['rounds']:,}; "


def goals_line(facts: dict[str, Any]) -> str:
    """Goals reached, and how many the next 1,000 passes are expected to reach; empty for guides that have none."""
    if not facts.get("goals"):
        return ""
    reached = ", ".join(f"{name} {n:,}" for name, n in facts["goals"].items())
    expected = facts.get("expected_goals")
    more = "too early to say how many more" if expected is None else f"about {expected:.0f} more in the next 1,000 passes"
    return f"goals reached: {reached}; {more}; "


def advice(faults: int, unseen: float | None) -> str:
    """Whether going on is likely to show anything new, by how many families were seen only once."""
    if unseen is None or faults < ENOUGH:
        return "too early to say whether to stop"
    chance = f"about {unseen:.1%} of further faults would be of a new family"
    return f"{chance}: little new is to be expected, consider stopping" if unseen < FEW else f"{chance}: worth going on"
