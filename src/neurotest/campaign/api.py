"""`neurotest.fuzz`: start a campaign or go on with one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neurotest import interrupts
from neurotest.audio import is_audio
from neurotest.campaign.believed import Believed
from neurotest.campaign.clock import Clock
from neurotest.campaign.driver import Driver, Watcher, Writer, progress
from neurotest.campaign.island import Common
from neurotest.campaign.islands import USUAL, Islands
from neurotest.campaign.plan import FuzzPlan
from neurotest.campaign.result import FuzzResult
from neurotest.campaign.rounds import IslandDriver
from neurotest.campaign.store import Store
from neurotest.coverage.criterion import Criterion
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, Interrupted, command
from neurotest.executor import Serial, current
from neurotest.generate.fuzz.guides import Guide, RandomGuide
from neurotest.generate.fuzz.loop import Fuzzer
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.fuzz.settings import Budget
from neurotest.jobs.methods import stored_method
from neurotest.jobs.opening import AnyTarget, digests, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.stored import stored_target, target_config
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.measure.context import Context
from neurotest.oracles import build_oracles, default_oracle
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.generate import FuzzSettings
from neurotest.target import Target

FITTED, VALUES = 1000, 1 << 24  # seeds that show what the data are like, and how many pixels or samples of them at most
FULL = "the limit of --disk was reached: later faults are rows without an image (`neurotest replay` makes them again)."


@public(FuzzSettings)
def fuzz(
    target: AnyTarget | None = None,
    seeds: AnyData | None = None,
    guide: str | Guide | Criterion | None = None,
    budget: Budget | None = None,
    *,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    watch: Watcher | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> FuzzResult:
    """Mutate seeds under a guide until the budget is spent, and keep what the oracles reject.

    guide: `goals` (default; it is the one that beats random), a criterion (`kmnc:1000`), `deephunter`, `tensorfuzz`, `nsgen` or
    `random`. budget: a Budget, or iterations=, forwards=, seconds=, outputs=, faults=, until_dry= (new goals expected of 1,000
    forward passes, below which it ends). mutations, validity: text, or objects.
    oracle: `label` by default, `regression` for a regression network. out: where the run goes (None:
    ./neurotest-runs; False: nothing is written). resume: a run to go on with: its settings stay, the budget may
    be another. keep, disk: images per family (5), and bytes of images in all (200 MB).
    control: let a random campaign of as many forward passes run beside it (default). judge: a second, better network that says
    which faults should still be given their class; without one a learner of the seeds does. islands: fuzzers that share the
    seeds and tell each other what they learned, so that workers can have one each; it belongs to the campaign, which gives the
    same with any number of workers (default: 1, or 8 inside `neurotest.workers`). stop: asked after every batch; True ends it so
    that it can be resumed (raises Interrupted).
    """
    limits = FuzzSettings.of_part("budget", settings)
    if budget is not None and limits:
        raise BadInput("conflict", "budget", "budget: give a Budget or its parts (iterations=, forwards=, ...), not both.")
    oracle = settings.get("oracle")
    if oracle is not None:
        settings["oracle"] = (oracle,) if isinstance(oracle, str) or not isinstance(oracle, Sequence) else tuple(oracle)
    given = {"guide": guide, **settings}
    callbacks: dict[str, Any] = {"watch": watch, "stop": stop or interrupts.requested}
    if resume is not None:

        def stored_job(run: Run, config: dict[str, Any]) -> _Campaign:
            plan = FuzzPlan.read(config).repeated(run, given)
            stored = run["budget"] if "budget" in run else config["budget"]
            total = budget or Budget(**{**stored, **limits})
            network = stored_target(run, target)
            return _Campaign.prepare(network, stored_source(run, config["seeds"], seeds), plan, total, callbacks)

        return resume_job(_fuzz_run(resume), "fuzz", stored_job, extends=True, out=out)
    if target is None or seeds is None:
        raise BadInput("missing", "target", "fuzz needs a target and seeds (or resume=RUN to go on with a campaign).")
    network = open_target(target)
    given["oracle"] = given.get("oracle") or (default_oracle(network),)
    if given.get("islands") is None:
        given["islands"] = _usual_islands()
    return run_job(_Campaign.prepare(network, seeds, FuzzPlan.of(given), budget or Budget(**limits), callbacks), out)


def _usual_islands() -> int:
    """One without workers. With them 8, or one per worker if there are more: up to 8 workers give the same campaign."""
    workers = current().workers
    return 1 if isinstance(current(), Serial) else max(USUAL, workers)


def _fuzz_run(path: str | Path) -> str | Path:
    """Runs of other commands are refused with the command that does it."""
    with Run.open(path) as run:
        if run["command"] == "swarm":
            raise BadInput(
                "wrong-run", "", f"{run.path} is a run of 'swarm', not of fuzz: {command('swarm', '--resume', run.path)}"
            )
        if run["command"] == "merge":
            raise BadInput(
                "wrong-run", "merged", f"{run.path} was merged from several campaigns and cannot be resumed: resume one of those."
            )
    return path


@dataclass(eq=False)
class _Campaign(Job[FuzzResult]):
    """A fuzzer with everything around it."""

    command = "fuzz"

    target: Target
    source: Source
    plan: FuzzPlan
    budget: Budget
    fuzzer: Fuzzer | Islands
    callbacks: dict[str, Any]
    clock: Clock
    believed: Believed | None = None
    train: Source | None = None
    driver: Writer | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def prepare(cls, target: Target, seeds: AnyData, plan: FuzzPlan, budget: Budget, callbacks: dict[str, Any]) -> _Campaign:
        clock = Clock()
        source = open_data(target, seeds, limit=plan.settings.limit)
        guide = plan.read_guide()
        settings = plan.loop_settings(guide, sound=is_audio(source.dtype, source.shape))
        oracles = build_oracles(target, list(plan.settings.oracle))
        chosen = choose_seeds(target, source, oracles, keep_wrong=plan.settings.keep_wrong)
        settings.mutations.check(tuple(chosen.x.shape[1:]))
        few = max(1, min(FITTED, VALUES // math.prod(chosen.x.shape[1:])))
        plan, settings = plan.fitted(settings, chosen.unit(chosen.x[:few]))
        train = None if plan.settings.train is None else open_data(target, plan.settings.train)
        context = Context(target=target, train=train, seed=settings.seed, cache=True)
        state = guide.start(context, source.take(chosen.positions))
        control = plan.settings.control and not isinstance(guide, RandomGuide)
        believed = Believed.of(chosen, plan.read_judge(), target, settings.mutations)
        plan = plan.but(islands=min(plan.settings.islands, len(chosen)))  # each begins with a seed at least
        fuzzer: Fuzzer | Islands
        if plan.settings.islands > 1:
            if believed is not None:
                believed.ready()
            common = Common(
                target, chosen, state, oracles, settings, plan.settings.islands, control, plan.settings.keep, believed
            )
            fuzzer = Islands(common, budget)
        else:
            fuzzer = Fuzzer(target, chosen, state, oracles, settings, budget)
            fuzzer = fuzzer.controlled() if control else fuzzer
        return cls(target, source, plan, budget, fuzzer, callbacks, clock, believed, train, notes=_notes(plan))

    def config(self) -> dict[str, Any]:
        return {
            **target_config(self.target), "seeds": stored_spec(self.source), "threads": torch.get_num_threads(),
            **self.plan.config(), "budget": self.budget.to_dict(), "digests": digests(seeds=self.source, train=self.train),
        }  # fmt: skip

    def fill(self, run: Run) -> None:
        Store(run).begin(self.fuzzer.seeds)
        run["classes"] = list(self.target.classes or self.source.classes or ())
        run["set aside"] = self.fuzzer.seeds.set_aside
        run["budget"] = self.budget.to_dict()
        run["progress"] = progress(self.fuzzer)

    def restore(self, run: Run) -> None:
        store = Store(run)
        store.reopen(self.fuzzer.seeds)
        self.driver = self._driver(store)
        self.driver.restore()
        with run.transaction():
            run["budget"] = self.budget.to_dict()
            run["classes"] = run["classes"] or list(self.target.classes or ())

    def kept(self, run: Run) -> str:
        return f"{self.fuzzer.tally.faults:,} faults" if self.fuzzer.tally.batches else ""

    def _driver(self, store: Store | None) -> Writer:
        limits = (store, self.plan.settings.keep, self.plan.settings.disk)
        around: dict[str, Any] = {"clock": self.clock, "believed": self.believed, **self.callbacks}
        if isinstance(self.fuzzer, Islands):
            return IslandDriver(*limits, islands=self.fuzzer, **around)
        return Driver(*limits, fuzzer=self.fuzzer, **around)

    def work(self, run: Run | None, progress: Progress | None) -> FuzzResult:
        driver = self.driver or self._driver(None if run is None else Store(run))
        fuzzer, seeds = self.fuzzer, self.fuzzer.seeds
        with nullcontext() if isinstance(fuzzer, Islands) else fuzzer:
            stopped = driver.run()
        if stopped == "interrupted":
            raise Interrupted(f"interrupted after {fuzzer.tally.faults:,} faults; nothing was written.")
        classes = run["classes"] if run is not None else list(self.target.classes or ())
        return FuzzResult(
            tally=fuzzer.tally, control=self._control(), classes=tuple(classes) or None, outputs_possible=seeds.classes,
            set_aside=seeds.set_aside, seeds=len(seeds), guide=_shown(self.plan.settings.guide), coverage=fuzzer.value(),
            stopped=stopped, notes=(*self.notes, *((FULL,) if driver.full else ())), details=fuzzer.details(),
            islands=self.plan.settings.islands, workers=current().workers,
            valid=None if self.believed is None else self.believed.summary(),
            seconds_by=self.clock.shares(fuzzer.tally, fuzzer.control.tally if fuzzer.control else None),
        )  # fmt: skip

    def _control(self) -> Tally | None:
        """A random campaign is its own control."""
        if self.fuzzer.control is not None:
            return self.fuzzer.control.tally
        return self.fuzzer.tally if self.plan.settings.control else None

    def record(self, run: Run, result: FuzzResult) -> None:
        from neurotest.campaign.shrink import adopt

        adopt(run)


def _notes(plan: FuzzPlan) -> tuple[str, ...]:
    executor, islands = current(), plan.settings.islands
    if isinstance(executor, Serial) or islands >= executor.workers:
        return ()
    one = f"this campaign has {islands} island{'s' * (islands > 1)}, so only as many of the {executor.workers} workers"
    return (f"{one} have work; for more, start a new one with --islands.",)


def _shown(guide: Any) -> str:
    stored = stored_method(guide)
    return stored if isinstance(stored, str) else repr(guide)


def campaign_config(run: Run) -> dict[str, Any]:
    """The configuration of a campaign, a swarm or merged ones; any other run is refused."""
    if run["command"] not in ("fuzz", "swarm", "merge"):
        raise BadInput("wrong-run", "", f"{run.path} is a run of {run['command']!r}, not of fuzz or swarm.")
    config = run["config"]
    if not isinstance(config, dict) or not {"guide", "oracle", "options"} <= config.keys():
        raise BadInput("damaged", "config", f"{run.path} has no configuration of a campaign: it is damaged.")
    return config
