"""A run as the live page shows it, read anew as it grows; nothing is changed."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray

from neurotest import registry
from neurotest.audio import difference, is_audio, wav
from neurotest.campaign.believed import sentence
from neurotest.campaign.families import Families, families
from neurotest.campaign.result import class_name
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.status import believed_of, control_of, tally_of
from neurotest.campaign.store import Store, StoredMutant
from neurotest.errors import BadInput, command, spelled
from neurotest.generate.fuzz.mutants import Key, Tally
from neurotest.mutate.chain import Chain, words
from neurotest.report.pictures import apart, bounds_of
from neurotest.report.section import Conclusion, Section, block_of, sections
from neurotest.runs import codec, lock
from neurotest.runs.rows import dumps
from neurotest.runs.store import UNFIT, Run
from neurotest.serve.media import LARGEST, WAV, Media, differing, picture, times_of
from neurotest.serve.models import Missing

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


Entry = dict[str, Any]
CAMPAIGNS = ("fuzz", "merge", "swarm")
BROWSED = ("families",)  # sections that the page shows in its own way
SEARCHED = ("true", "predicted", "operator", "change", "root_file")  # where a search looks
VIEWS = ("seed", "fault", "difference", "shrunk")


def _key_text(key: Key) -> str:
    """A family as a short word of an address."""
    return hashlib.blake2b(dumps(list(key)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class _Grouped:
    """The families of a run at one moment."""

    changed: str
    families: Families
    shrunk: dict[Key, Any]


class Live:
    """One run; several requests may read it at once."""

    def __init__(self, path: Path, network: Any = None) -> None:
        self.path, self.network = path, network
        self._grouped: _Grouped | None = None
        self._parts: Entry = {"changed": "", "parts": []}
        self._parts_due = 0.0
        self._busy = threading.Lock()  # grouping and drawing are done once for all who ask
        with Run.open(path) as run:
            self.command = str(run["command"])
            self.id = str(run["id"])

    # -- how it stands

    def state(self) -> Entry:
        with Run.open(self.path) as run:
            state = self._state(run)
            conclusion, numbers = self._said(run, state)
            return {
                "run": self.path.name, "command": self.command, "target": self._target(run), "state": state,
                "changed": self._changed(run, state), "sentence": conclusion.sentence, "bad": conclusion.bad,
                "good": conclusion.good,
                "steps": [{"purpose": purpose, "command": command} for purpose, command in conclusion.steps],
                "numbers": [{"name": name, "value": value} for name, value in numbers],
                "browsable": self.command in CAMPAIGNS, "note": self._note(run),
                "caution": caution(run) if self.command in CAMPAIGNS else "",
            }  # fmt: skip

    def _state(self, run: Run) -> str:
        return "running" if lock.is_locked(run.path) else "done" if run["state"] == "done" else "unfinished"

    def _target(self, run: Run) -> str:
        config = run["config"]
        return str(config.get("target") or "") if isinstance(config, dict) else ""

    def _changed(self, run: Run, state: str) -> str:
        """Another text whenever the run holds more than before."""
        rows = run.rows("SELECT (SELECT max(number) FROM mutant), (SELECT count(*) FROM shrunk), (SELECT max(n) FROM label)")
        progress = run["progress"] if "progress" in run else None  # noqa: SIM401 - a run is no mapping
        return hashlib.blake2b(dumps([state, run["finished"], rows[0], progress]).encode(), digest_size=8).hexdigest()

    def _note(self, run: Run) -> str:
        """Whether the network may be opened for further work."""
        target = self._target(run)
        if self.command not in CAMPAIGNS or self.network is not None or run.made_here or target.startswith("zoo:"):
            return ""
        return (
            "This run was made elsewhere and its target could run code: faults can be looked at; to explain or shrink them, "
            "start `neurotest serve RUN --target ...` with a target of your own."
        )

    def _said(self, run: Run, state: str) -> tuple[Conclusion, list[tuple[str, str]]]:
        """The first sentence: the report's own when the run is done, the counters while it is not."""
        if self.command in CAMPAIGNS and state != "done":
            return self._so_far(run, state)
        numbers = self._counted(run) if self.command in CAMPAIGNS else []
        for section in sections(self.command):
            if section.applies(run) and (content := _content(section, run)) is not None:
                if isinstance(conclusion := content.get("conclusion"), Conclusion):
                    return conclusion, numbers
                break
        if state == "running":
            return Conclusion(f"`neurotest {self.command}` is at work; what it has finished stands below."), numbers
        return Conclusion(f"A run of `neurotest {self.command}`."), numbers

    def _so_far(self, run: Run, state: str) -> tuple[Conclusion, list[tuple[str, str]]]:
        if "progress" not in run:
            return Conclusion("The campaign has not finished its first batch yet."), []
        tally, control = tally_of(run), control_of(run)
        seeds = run.rows("SELECT count(*) FROM input")[0][0]
        beside = "" if control is None else f"; random {random_words(tally, control)} found {len(control.families):,} families"
        found = (
            f"{len(tally.roots):,} of {seeds:,} seeds can be changed so that the network errs: {tally.faults:,} faults in "
            f"{len(tally.families):,} fault families{beside}."
        )
        text = f"So far {found}" if tally.faults else "No fault so far."
        steps = (("Go on with it", command(self.command, "--resume", self.path)),) if state == "unfinished" else ()
        return Conclusion(text, bad=bool(tally.faults), steps=steps), self._counted(run)

    def _counted(self, run: Run) -> list[tuple[str, str]]:
        if "progress" not in run:
            return []
        tally, control = tally_of(run), control_of(run)
        seeds = run.rows("SELECT count(*) FROM input")[0][0]
        numbers = [
            ("faults", f"{tally.faults:,}"),
            ("fault families", f"{len(tally.families):,}"),
            ("seeds broken", f"{len(tally.roots):,} of {seeds:,}"),
            ("forward passes", f"{tally.counts().get('forwards', 0):,}"),
        ]
        if control is not None:
            numbers.append((f"families that random found {random_words(tally, control)}", f"{len(control.families):,}"))
        return numbers + budget_words(run, tally)

    # -- sections of the report

    def parts(self) -> Entry:
        """Those that what the run holds is enough for, as of `changed`; drawing takes at most a tenth of the time from whoever
        writes the run."""
        with self._busy, Run.open(self.path) as run:
            began, state = time.monotonic(), self._state(run)
            changed = self._changed(run, state)
            if self._parts["changed"] != changed and (state != "running" or began >= self._parts_due):
                applying = [section for section in sections(self.command) if section.name not in BROWSED and section.applies(run)]
                parts = [part for section in applying if (part := _part(section, run)) is not None]
                self._parts = {"changed": changed, "parts": parts}
                self._parts_due = time.monotonic() + 9 * (time.monotonic() - began)
            return self._parts

    # -- families and faults

    def grouped(self) -> _Grouped:
        with self._busy, Run.open(self.path) as run:
            self._refuse_others()
            changed = self._changed(run, self._state(run))
            if self._grouped is None or self._grouped.changed != changed:
                self._grouped = _Grouped(changed, families(self.path), shrunk_of(run))
            return self._grouped

    def _refuse_others(self) -> None:
        if self.command not in CAMPAIGNS:
            raise Missing("wrong-run", "", f"{self.path.name} is a run of {self.command!r}: it holds no fault families.")

    def families(self, wanted: dict[str, str], search: str, offset: int, limit: int) -> Entry:
        """Families by true class, predicted class and mutation, and by words; the most frequent first."""
        group = self.grouped()
        rows = [(spelled(row), family) for row, family in zip(group.families.table(), group.families.families, strict=True)]
        lists = {
            name: sorted({str(row[key]) for row, _ in rows})
            for name, key in (("true", "true"), ("predicted", "predicted"), ("operators", "operator"))
        }
        fitting = [
            (row, family)
            for row, family in rows
            if all(not value or str(row[name]) == value for name, value in wanted.items())
            and search.lower() in " ".join(str(row[name]) for name in SEARCHED).lower()
        ]
        shown = [
            {
                **{name: str(row[name]) for name in ("true", "predicted", "operator", "change")}, "key": _key_text(family.key),
                "faults": row["faults"], "seeds": row["roots"], "fault": row["fault"], "linf": row["linf"],
                "picture": row["file"] is not None, "shrunk": family.key in group.shrunk,
            }
            for row, family in fitting[offset : offset + limit]
        ]  # fmt: skip
        return {"total": len(fitting), "families": shown, **lists}

    def faults(self, key: str, offset: int, limit: int) -> Entry:
        """The faults of one family, those with a picture first, the smallest change first."""
        named = [family.key for family in self.grouped().families.families if _key_text(family.key) == key]
        if not named:
            raise Missing("not-found", "family", "there is no such family.")
        with Run.open(self.path) as run:
            where = "oracle IS NOT NULL AND expected = ? AND predicted = ? AND operator = ?"
            mutants = sorted(Store(run).mutants(where, *named[0]), key=lambda m: (m.file is None, len(m.chain), m.distance[1]))
        rows = [
            {
                "number": m.number, "root": m.root, "change": change_words(run, m.chain), "linf": m.distance[2],
                "l2": m.distance[1], "picture": m.file is not None,
            }
            for m in mutants[offset : offset + limit]
        ]  # fmt: skip
        return {"total": len(mutants), "faults": rows}

    def fault(self, number: int) -> Entry:
        with Run.open(self.path) as run:
            mutant = self._mutant(run, number)
            names = {row.position: row.words for row in run.inputs() if row.position == mutant.root}
            classes = tuple(run["classes"] or ()) if "classes" in run else ()
            small = shrunk_of(run).get(mutant.family)
            views = [view for view in VIEWS if self._view(run, mutant, view) is not None]
            share = self._apart(run, mutant)
            change, rate = change_words(run, mutant.chain), run.rate
        true, predicted = (class_name(one, classes or None) for one in mutant.family[:2])
        return {
            "number": number, "true": true, "predicted": predicted, "operator": mutant.operator, "key": _key_text(mutant.family),
            "change": change, "oracle": mutant.oracle or "", "judged": judged_by(mutant.oracle or ""),
            "times": None if share is None else times_of(share), "seed": names.get(mutant.root, str(mutant.root)),
            "l0": mutant.distance[0], "l2": mutant.distance[1], "linf": mutant.distance[2], "pictures": views,
            "sounds": [view for view in views if view != "difference"] if rate is not None else [],
            "shrunk": None if small is None else str(small["after"]),
        }  # fmt: skip

    def picture(self, number: int, view: str) -> Media:
        with Run.open(self.path) as run:
            shown = self._view(run, self._mutant(run, number), view)
        if shown is None:
            raise Missing("not-found", "picture", f"the run has no image {view!r} of fault {number}.")
        return shown

    def sound(self, number: int, view: str) -> Media:
        """What is heard of a fault, of its seed or of the fault when it was shrunk."""
        with Run.open(self.path) as run:
            mutant = self._mutant(run, number)
            small = shrunk_of(run).get(mutant.family) if view == "shrunk" else None
            file = mutant.file if view == "fault" else None if small is None else small["file"]
            seed = _seed(run, mutant.root) if view == "seed" else None
            if file is not None and codec.is_wav(file):
                return Media(WAV, file.read(LARGEST))
            if seed is not None and is_audio(seed.dtype, seed.shape) and run.rate is not None:
                return Media(WAV, wav(seed, run.rate))
        raise Missing("not-found", "sound", f"the run has no audio {view!r} of fault {number}.")

    def _mutant(self, run: Run, number: int) -> StoredMutant:
        self._refuse_others()
        if not (mutants := Store(run).mutants("number = ? AND oracle IS NOT NULL", number)):
            raise Missing("not-found", "fault", f"there is no fault {number}.")
        return mutants[0]

    def _view(self, run: Run, mutant: StoredMutant, view: str) -> Media | None:
        if view == "shrunk":
            small = shrunk_of(run).get(mutant.family)
            file = None if small is None else small["file"]
        else:
            file = mutant.file
        if view in ("fault", "shrunk"):
            shown = None if file is None else codec.picture(file)
            return None if shown is None else Media("image/png", shown.read(LARGEST))
        seed = _seed(run, mutant.root)
        if seed is None or not codec.viewable(seed):
            return None
        if view == "seed":
            return picture(seed, bounds_of(run))
        if is_audio(seed.dtype, seed.shape) and file is not None:
            return picture(difference(np.asarray(codec.decode(file)), seed))
        share = self._apart(run, mutant)
        return None if share is None else differing(share)

    def _apart(self, run: Run, mutant: StoredMutant) -> NDArray[np.float64] | None:
        """(channels, height, width) How far a fault lies from its seed; None where one of them is not stored."""
        seed = _seed(run, mutant.root)
        if seed is None or mutant.file is None:
            return None
        return apart(np.asarray(codec.decode(mutant.file)), seed, bounds_of(run))


def _seed(run: Run, position: int) -> NDArray[Any] | None:
    x, rows = Store(run).seeds()
    return np.array(x[rows[position]]) if position in rows else None


def _content(section: Section, run: Run) -> Entry | None:
    """What a section shows; None where the run does not hold it yet."""
    try:
        return section.content(run)
    except (BadInput, *UNFIT):
        return None


def _part(section: Section, run: Run) -> Entry | None:
    try:
        block = block_of(section, run)
    except (BadInput, TemplateError, *UNFIT):
        return None
    return None if block is None else {"name": block.name, "title": block.title, "html": block.html}
