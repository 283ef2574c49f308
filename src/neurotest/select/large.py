"""`neurotest.score`: a score for every input of data of any size, written as Parquet part by part.

What is kept in memory does not grow with the data, except for some bytes per input that say where it lies. A part is scored by
any worker; a batch on which workers die or hang is tried again, then set aside and named. A killed run goes on with the parts
that are missing, so every input is scored once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import rng
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.executor import Lost, current
from neurotest.files import write_json
from neurotest.jobs.life import resumed
from neurotest.jobs.opening import AnyTarget, known_training, open_counted, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.stored import stored_target, target_config
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.measure.several import Several
from neurotest.notebook import view
from neurotest.pieces import PIECE_BATCHES, Piece, pieces
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.scan import Progress, check_labels, each_batch, remarks
from neurotest.select import score_files
from neurotest.select.api import adapted, build
from neurotest.select.score_files import Rows
from neurotest.select.scorer import PerInput, Pool, Scorer
from neurotest.select.scoring import Scoring, begin
from neurotest.select.spread import DEPTH
from neurotest.select.spread import spread as dispersed
from neurotest.settings.select import ScoreSettings
from neurotest.stats.faults import budget as read_budget
from neurotest.stats.moments import Best
from neurotest.target import Target

PIECES = 4  # of a file
PICKED = 1000  # by each method, unless somebody says
ASIDE = "set aside"  # entry of the run
WHOLE = (
    "{} has to see the whole pool at once: `neurotest select` does that, for pools that fit memory; of a larger one, score it by "
    "another method and select among the picks (docs/scale.md)."
)
NAMED = 20  # inputs of a batch that is set aside, by name


@public(ScoreSettings)
def score(
    target: AnyTarget | None = None,
    data: AnyData | None = None,
    methods: str | Scorer | Sequence[str | Scorer] | None = None,
    *,
    train: AnyData | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ScoreResult:
    """Score every input of data of any size, and pick the budget from the best.

    methods: names of `neurotest list selector` whose scores depend on one input each (default: deepgini). budget: `0.1%` or a
    number of inputs to pick by each method (default: 1000, or all there are). spread: pick a diverse batch from the top. train:
    training data, for methods that learn from it. timeout: seconds after which a worker that is at one batch counts as hanging.
    strict: refuse data with a file that cannot be read, instead of leaving it out with a remark.
    out: where the run goes; RUN/scores holds ids and scores. resume: a run to go on with.
    """
    settings["methods"] = methods
    score_files.pyarrow()
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Scores:
            chosen = resumed(ScoreSettings, run, config, settings)
            source = stored_source(run, config["data"], data, "data")
            learned = None if config["train"] is None else stored_source(run, config["train"], train, "training data")
            return _Scores.prepare(stored_target(run, target), source, learned, chosen)

        return resume_job(resume, "score", again, progress, out=out)
    if target is None or data is None:
        raise BadInput("missing", "target", "score needs a target and data (or resume=RUN to go on with one).")
    named = [methods] if isinstance(methods, (str, Scorer)) else methods
    return run_job(_Scores.prepare(open_target(target), data, train, ScoreSettings.of(settings), named), out, progress)


@dataclass(frozen=True)
class ScoreResult:
    """How scores are distributed, which inputs are the best by each method, and what was set aside."""

    methods: Mapping[str, dict[str, Any]]
    inputs: int
    scored: int
    set_aside: tuple[dict[str, Any], ...]
    accuracy: float | None = None
    notes: tuple[str, ...] = ()
    run: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs, "scored": self.scored, "accuracy": self.accuracy, "set_aside": list(self.set_aside),
            "methods": dict(self.methods), "notes": list(self.notes), "run": str(self.run) if self.run else None,
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        write_json(Path(path), self.to_dict())
        return Path(path)

    def headline(self) -> str:
        aside = f", {self.inputs - self.scored:,} set aside" if self.set_aside else ""
        return f"{self.scored:,} of {self.inputs:,} inputs have scores{aside}"

    def _repr_html_(self) -> str:
        return view([self.headline(), *self.notes], (), self.table())

    def table(self) -> list[dict[str, Any]]:
        """One row per pick, method by method."""
        rows = []
        for name, one in self.methods.items():
            picks = zip(one["ids"], one["indices"], one["scores"], strict=True)
            rows += [{"method": name, "rank": r, "id": i, "index": p, "score": s} for r, (i, p, s) in enumerate(picks, start=1)]
        return rows


@dataclass(eq=False, kw_only=True)
class _Scores(Job[ScoreResult]):
    """The work of one run."""

    command = "score"

    target: Target
    source: Source
    scorers: dict[str, Scorer]
    settings: ScoreSettings
    train: Source | None
    notes: tuple[str, ...] = ()
    aside: list[dict[str, Any]] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)

    @classmethod
    def prepare(
        cls,
        target: Target,
        data: AnyData,
        train: AnyData | None,
        settings: ScoreSettings,
        methods: Sequence[str | Scorer] | None = None,
    ) -> _Scores:
        """methods: those that the settings name, where Python brought them along."""
        source, classes = open_counted(target, data, limit=settings.limit, strict=settings.strict)
        check_labels(source, classes)
        names = settings.methods
        scorers = {name: build(method) for name, method in zip(names, methods or names, strict=True)}
        several = Several(scorers)
        scorers, notes = adapted(scorers, source, several)
        for refusal in several.refusals.values():
            raise refusal
        for name, scorer in scorers.items():
            if not scorer.pointwise or scorer.sample is None:
                raise BadInput("unsuitable", "method", WHOLE.format(name))
        learned = known_training(target) if train is None else open_data(target, train)
        learned = learned if any(getattr(scorer, "learns", None) for scorer in scorers.values()) else None
        sentences = tuple(dict.fromkeys([*remarks(target, source), *(note for each in notes.values() for note in each)]))
        job = cls(target=target, source=source, scorers=scorers, settings=settings, train=learned, notes=sentences)
        _ = job.picked  # a budget that does not fit is refused before the work
        return job

    def config(self) -> dict[str, Any]:
        return {
            **target_config(self.target), "data": stored_spec(self.source), "train": stored_spec(self.train),
            **self.settings.stored(), "inputs": len(self.source), "ends": self.source.keys([0, len(self.source) - 1]),
        }  # fmt: skip

    def kept(self, run: Run) -> str:
        count = sum(1 for _ in score_files.numbers(run))
        return f"{count} of {self.files} parts" if count else ""

    # -- where everything lies

    @property
    def batch(self) -> int:
        return self.settings.batch

    @property
    def per_file(self) -> int:
        return self.batch * PIECE_BATCHES * PIECES

    @property
    def files(self) -> int:
        return -(-len(self.source) // self.per_file)

    @property
    def picked(self) -> int:
        """How many are picked by each method."""
        if self.settings.budget is None:
            return min(PICKED, len(self.source))
        return read_budget(self.settings.budget, len(self.source))

    def restore(self, run: Run) -> None:
        """What is there and belongs to the data; the rest is done again."""
        config = run["config"]
        if (config["inputs"], config["ends"]) != (self.config()["inputs"], self.config()["ends"]):
            raise BadInput(
                "changed",
                "data",
                f"the data are not those {run.path} was started with: resume it with the same, or start a new run.",
            )
        self.aside = list(run[ASIDE]) if ASIDE in run else []
        left_out = {position for one in self.aside for position in range(one["first"], one["last"] + 1)}
        for number in score_files.numbers(run):
            expected = [p for p in self._positions(number) if p not in left_out]
            rows = score_files.read(run, number, list(self.scorers))
            if rows is not None and rows.positions.tolist() == expected and rows.ids == self.source.keys(expected):
                self.finished.add(number)
        self.aside = [one for one in self.aside if one["first"] // self.per_file in self.finished]

    def _positions(self, number: int) -> range:
        return range(number * self.per_file, min(len(self.source), (number + 1) * self.per_file))

    # -- the work

    def work(self, run: Run | None, progress: Progress | None) -> ScoreResult:
        assert run is not None
        shared = (self.target, self._scoring(), self.batch)
        done = sum(len(self._positions(number)) for number in self.finished)
        waiting: dict[int, list[tuple[Piece, Rows]]] = {}
        for piece, rows, lost in self._scored(shared):
            number = piece.start // self.per_file
            here = waiting.setdefault(number, [])
            here.append((piece, rows))
            self.aside += lost
            done += len(piece.index)
            if sum(len(one.index) for one, _ in here) == len(self._positions(number)):
                with run.transaction():
                    run[ASIDE] = self.aside
                parts = [rows for _, rows in sorted(waiting.pop(number), key=lambda pair: pair[0].start)]
                score_files.write(run, number, Rows.joined(parts, list(self.scorers)))
                self.finished.add(number)
            if progress is not None:
                progress(done, len(self.source))
        return self._result(run)

    def _scoring(self) -> Scoring:
        """States that know what they have to know before they score one input: training data, a sample of the pool."""
        size = max((scorer.sample or 0 for scorer in self.scorers.values()), default=0)
        few = max(1, min(size, len(self.source)))
        order = np.arange(few)
        if few < len(self.source) and size:
            order = np.sort(rng.stream("select.sample", self.settings.seed).permutation(len(self.source))[:few])
        sample = self.source.take(order)
        pool = Pool(self.target, sample, self.settings.seed, train=self.train, batch=self.batch)
        several = Several(self.scorers)
        scoring = begin(pool, self.scorers, several)
        if scoring.partners is not None:
            scoring.partners.count = len(self.source)
        for refusal in several.refusals.values():
            raise refusal
        if size:
            piece = Piece(0, order, sample)
            live = dataclasses.replace(scoring, piece=piece, live=frozenset(), predictions=np.full(few, -1))
            each_batch(self.target, sample, live.step, wants=live.wants, batch=self.batch)
        for name, state in scoring.states.items():
            if not isinstance(state, PerInput):
                raise BadInput("unsuitable", "method", WHOLE.format(name))
        portable = scoring.portable()
        assert portable is not None
        return portable

    def _scored(self, shared: Any) -> Iterator[tuple[Piece, Rows, list[dict[str, Any]]]]:
        """Every piece that is missing with what of it was set aside.

        A piece on which workers were lost is done again batch by batch, so that no more than the guilty batch is set aside.
        """
        queue = _Queue(p for p in pieces(self.source, self.batch) if p.start // self.per_file not in self.finished)
        for piece, result in current().attempt(_score, shared, queue, timeout=PIECE_BATCHES * self.settings.timeout):
            if isinstance(result, Lost):
                if len(piece.index) > self.batch:
                    queue.first += _split(piece, self.batch)
                    continue
                nothing = Rows.joined([], list(self.scorers))
                lost = [self._aside(piece, 0, len(piece.index) - 1, f"its worker was lost: {result.reason}")]
                yield piece, nothing, lost
                continue
            rows, failed = result
            lost = [self._aside(piece, *failure) for failure in failed]
            if not len(rows) and piece.start == 0 and lost:
                raise BadInput(
                    "unreadable", "inputs", f"nothing of the first {len(piece.index)} inputs can be scored: {lost[0]['reason']}"
                )
            yield piece, rows, lost

    def _aside(self, piece: Piece, first: int, last: int, reason: str) -> dict[str, Any]:
        named = piece.source.keys(np.arange(first, min(last + 1, first + NAMED)))
        return {"first": piece.start + first, "last": piece.start + last, "ids": named, "reason": reason}

    # -- from scores to picks

    def _result(self, run: Run) -> ScoreResult:
        """One look at the files: what is kept of them is small, and merged."""
        picked = self.picked
        best = {name: Best(picked * (DEPTH if self.settings.spread else 1)) for name in self.scorers}
        scored = right = labelled = 0
        for number in range(self.files):
            rows = score_files.read(run, number, list(self.scorers))
            if rows is None:
                raise BadInput(
                    "damaged",
                    "parts",
                    f"{run.path}: the scores of part {number} are gone: go on with --resume, they are made again.",
                )
            scored += len(rows)
            for name, values in rows.scores.items():
                best[name].update(rows.positions, values)
            if rows.labels is not None:
                labelled += len(rows)
                right += int((rows.labels == rows.predicted).sum())
        methods = {name: self._picks(one, picked) for name, one in best.items()}
        notes = list(self.notes)
        if self.aside:
            count = len(self.source) - scored
            first = f"{self.aside[0]['ids'][0]}, {self.aside[0]['reason']}"
            notes.append(f"{count} of {len(self.source)} inputs are set aside (first: {first}).")
        accuracy = right / labelled if labelled else None
        return ScoreResult(methods, len(self.source), scored, tuple(self.aside), accuracy, tuple(notes))

    def _picks(self, best: Best, picked: int) -> dict[str, Any]:
        order, near = best.positions, None
        values = dict(zip(best.positions.tolist(), best.scores.tolist(), strict=True))
        if self.settings.spread and len(order):
            pool = Pool(self.target, self.source, self.settings.seed, picked=picked, batch=self.batch)
            order, near = dispersed(pool, order)
        order = order[:picked]
        return {
            **best.to_dict(), "indices": order.tolist(), "ids": self.source.keys(order),
            "scores": [values[position] for position in order.tolist()], **({} if near is None else near.to_dict()),
        }  # fmt: skip


class _Queue:
    """Pieces, and those that come first because they are done again."""

    def __init__(self, left: Iterator[Piece]) -> None:
        self.left = left
        self.first: list[Piece] = []

    def __iter__(self) -> _Queue:
        return self

    def __next__(self) -> Piece:
        return self.first.pop(0) if self.first else next(self.left)


def _split(piece: Piece, size: int) -> list[Piece]:
    parts = []
    for start in range(0, len(piece.index), size):
        rows = np.arange(start, min(start + size, len(piece.index)))
        parts.append(Piece(piece.start + start, piece.index[rows], piece.source.take(rows)))
    return parts


Failure = tuple[int, int, str]  # first and last input in the piece, and why


def _score(shared: tuple[Target, Scoring, int], piece: Piece) -> tuple[Rows, list[Failure]]:
    """In a worker: one piece. Inputs that cannot be read or scored are left out, one by one, with the reason."""
    target, scoring, batch = shared
    try:
        return _rows(target, scoring, piece, batch), []
    except Exception:
        if len(piece.index) == 1:
            raise
    parts: list[Rows] = []
    failures: list[Failure] = []
    for small in _split(piece, batch if len(piece.index) > batch else 1):
        start = small.start - piece.start
        try:
            rows, failed = _score(shared, small)
        except Exception as error:
            failures.append((start, start, str(error) or type(error).__name__))
            continue
        parts.append(rows)
        failures += [(start + first, start + last, reason) for first, last, reason in failed]
    return Rows.joined(parts, list(scoring.scorers)), failures


def _rows(target: Target, scoring: Scoring, piece: Piece, batch: int) -> Rows:
    part = scoring.fresh(piece, here=False)
    each_batch(target, piece.source, part.step, wants=part.wants, batch=batch)
    several, results, predicted = part.result()
    for refusal in several.refusals.values():
        raise refusal
    scores = {name: np.asarray(result[0] if isinstance(result, tuple) else result) for name, result in results.items()}
    for name, values in scores.items():
        if np.isnan(values).any():
            raise BadInput(
                "not-finite", "scores", f"{name} gives no score for {int(np.isnan(values).sum())} inputs (NaN activations?)."
            )
    keys = piece.source.keys(np.arange(len(piece.index)))
    return Rows(keys, piece.index, predicted, piece.source.labels, scores)
