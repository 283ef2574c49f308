"""`neurotest.fuzz`: start a campaign or go on with one."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neurotest import registry
from neurotest.campaign.driver import Driver, Watcher, progress
from neurotest.campaign.result import FuzzResult
from neurotest.campaign.store import Store
from neurotest.coverage.context import Context
from neurotest.coverage.criterion import Criterion
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput, Interrupted
from neurotest.generate.fuzz.guides import Guide, RandomGuide, build_guide
from neurotest.generate.fuzz.loop import Fuzzer
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.oracles import Oracle, court
from neurotest.runs.store import Run
from neurotest.target import Target
from neurotest.target.load import load

SEALED = ("target", "fingerprint")
BUDGETS = ("iterations", "forwards", "seconds", "outputs", "faults")
FULL = "the limit of --disk was reached: later faults are rows without an image (`neurotest replay` makes them again)."
STOPPED = "interrupted after {n:,} faults, everything is saved. Go on with: neurotest fuzz --resume {path}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was asked for, in words; a run stores it and is resumed from it."""

    guide: Any
    oracle: tuple[Any, ...]
    train: Any
    options: dict[str, Any]
    keep_wrong: bool
    limit: int | None
    layers: str | None
    neuron: str | None
    keep: int
    disk: float
    control: bool = True

    def config(self, target: Target, source: Source, budget: Budget) -> dict[str, Any]:
        said = {
            "guide": _text(self.guide), "oracle": [_text(one) for one in self.oracle],
            "train": _text(self.train.spec if isinstance(self.train, Source) else self.train),
            "options": {key: _text(value) for key, value in self.options.items()},
        }  # fmt: skip
        rest = {name: getattr(self, name) for name in ("keep_wrong", "limit", "layers", "neuron", "keep", "disk", "control")}
        about = {
            "target": target.spec,
            "fingerprint": target.fingerprint,
            "seeds": source.spec,
            "threads": torch.get_num_threads(),
        }
        return {**about, **said, **rest, "budget": budget.to_dict()}

    @classmethod
    def of(cls, config: dict[str, Any]) -> Plan:
        try:
            rest = {
                name: config[name]
                for name in ("guide", "train", "options", "keep_wrong", "limit", "layers", "neuron", "keep", "disk")
            }
            return cls(oracle=tuple(config["oracle"]), control=bool(config.get("control")), **rest)
        except (KeyError, TypeError):
            raise BadInput("the run's configuration is not that of a campaign: it is damaged or of another command.") from None


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)


def fuzz(
    target: Target | str | None = None,
    seeds: Source | str | None = None,
    guide: str | Guide | Criterion = "nlc",
    budget: Budget | None = None,
    *,
    train: Source | str | None = None,
    oracle: str | Oracle | Sequence[str | Oracle] = "label",
    keep_wrong: bool = False,
    limit: int | None = None,
    layers: str | None = None,
    neuron: str | None = None,
    keep: int = 5,
    disk: float = 200e6,
    control: bool = True,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    watch: Watcher | None = None,
    stop: Callable[[], bool] | None = None,
    started: Callable[[Run], None] | None = None,
    **options: Any,
) -> FuzzResult:
    """Mutate seeds under a guide until the budget is spent, and keep what the oracles condemn.

    guide: a criterion (`kmnc:1000`), `deephunter`, `tensorfuzz` or `random`. budget: a Budget, or iterations=, forwards=,
    seconds=, outputs=, faults=. options: the fields of `Settings` (mutations and validity may be text). out: where the run goes
    (None: ./neurotest-runs; False: nothing is written). resume: a run to go on with. keep, disk: images per family, and bytes of
    images in all. control: let a random campaign of as many forward passes run beside it. stop: asked after every batch; True
    ends it so that it can be resumed (raises Interrupted).
    """
    said = {name: options.pop(name) for name in BUDGETS if options.get(name) is not None}
    for name in BUDGETS:
        options.pop(name, None)
    if budget is not None and said:
        raise BadInput("budget: give a Budget or its parts (iterations=, forwards=, ...), not both.")
    driving: dict[str, Any] = {"watch": watch, "stop": stop or (lambda: False)}
    if resume is not None:
        return _resume(resume, target, seeds, budget, said, driving)
    if target is None or seeds is None:
        raise BadInput("fuzz needs a target and seeds (or resume=RUN to go on with a campaign).")
    target = load(target)
    budget = budget or Budget(**said)
    several = (oracle,) if isinstance(oracle, str) or not isinstance(oracle, Sequence) else tuple(oracle)
    plan = Plan(
        guide=guide, oracle=several, train=train, options=options, keep_wrong=keep_wrong, limit=limit, layers=layers,
        neuron=neuron, keep=keep, disk=disk, control=control,
    )  # fmt: skip
    source = data(seeds, shape=target.shape, limit=limit)
    fuzzer = _prepare(target, source, plan, budget)
    if out is False:
        driver = Driver(fuzzer, None, **driving)
        return _run(driver, target, plan, None)
    run = Run.create(None if out in (None, True) else Path(str(out)), "fuzz", plan.config(target, source, budget))
    try:
        store = Store(run)
        with run.transaction():
            store.begin(fuzzer.seeds)
            run["classes"] = list(target.classes or source.classes or ())
            run["set aside"] = fuzzer.seeds.set_aside
            run["budget"] = budget.to_dict()
            run["progress"] = progress(fuzzer)
        if started is not None:
            started(run)
    except BaseException:
        run.close()
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    with run:
        return _run(Driver(fuzzer, store, keep, disk, **driving), target, plan, run)


def _resume(
    path: Any, target: Any, seeds: Any, budget: Budget | None, said: dict[str, Any], driving: dict[str, Any]
) -> FuzzResult:
    with Run.open(path, write=True) as run:
        config = campaign_config(run)
        if run["command"] == "swarm":
            raise BadInput(f"{run.path} is a run of 'swarm', not of fuzz: neurotest swarm --resume {run.path}")
        if run["command"] != "fuzz":
            raise BadInput(f"{run.path} was merged from several campaigns and cannot be resumed: resume one of those.")
        plan = Plan.of(config)
        target = usable_target(run, target)
        known: dict[str, Any] = run["budget"] if "budget" in run else config["budget"]
        budget = budget or Budget(**{**known, **said})
        source = data(seeds if seeds is not None else str(config["seeds"]), shape=target.shape, limit=plan.limit)
        fuzzer = _prepare(target, source, plan, budget)
        _check_seeds(run, fuzzer.seeds)
        store = Store(run)
        store.sweep()
        driver = Driver(fuzzer, store, plan.keep, plan.disk, **driving)
        _restore(run, store, driver)
        with run.transaction():
            run["budget"] = budget.to_dict()
        return _run(driver, target, plan, run)


def _restore(run: Run, store: Store, driver: Driver) -> None:
    """Back to the last snapshot, then again through the batches that were committed after it."""
    fuzzer = driver.fuzzer
    saved = store.restored(fuzzer.seeds)
    done = int(run["progress"]["batches"])
    if saved is not None:
        at = int(saved.plain["tally"]["batches"])
        seen = (int(str(content), 16) for (content,) in run.rows("SELECT content FROM mutant WHERE batch <= ?", at))
        try:
            fuzzer.restore(saved.plain, saved.entries, seen)
            if fuzzer.control is not None:
                fuzzer.control.restore(saved.control or {}, store.control(at))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"{run.path} cannot be resumed: its snapshot does not fit ({error!r}). Its faults are safe."
            ) from error
        if saved.arrays:
            fuzzer.guide.restore(saved.arrays)
    with fuzzer:
        driver.catch_up(done)
    for expected, predicted, operator, n in run.rows(
        "SELECT expected, predicted, operator, count(*) FROM mutant WHERE file IS NOT NULL GROUP BY 1, 2, 3"
    ):
        driver.kept[(int(expected), int(predicted), str(operator))] = int(n)
    driver.written = int(run["written"]) if "written" in run else 0


def _check_seeds(run: Run, seeds: Seeds) -> None:
    stored = [str(content) for (content,) in run.rows("SELECT content FROM input ORDER BY position")]
    if stored != seeds.contents.tolist():
        raise BadInput(
            f"the seeds are not those {run.path} was started with: resume it with the same data, or start a new campaign."
        )


def campaign_config(run: Run) -> dict[str, Any]:
    """The configuration of a campaign, a swarm or merged ones; any other run is refused."""
    if run["command"] not in ("fuzz", "swarm", "merge"):
        raise BadInput(f"{run.path} is a run of {run['command']!r}, not of fuzz or swarm.")
    config = run["config"]
    if not isinstance(config, dict) or not {"guide", "oracle", "options"} <= config.keys():
        raise BadInput(f"{run.path} has no configuration of a campaign: it is damaged.")
    return config


def usable_target(run: Run, given: Target | str | None) -> Target:
    """The target of a run: a stored zoo: is used, anything else only if this user made the run here, or says it again."""
    config = campaign_config(run)
    spec = str(config.get("target"))
    if given is None and not spec.startswith("zoo:") and not run.made_here:
        raise BadInput(
            f"{run.path} was made elsewhere and names the target {spec!r}, which could run code: name the target yourself "
            "with --target."
        )
    target = load(spec if given is None else given)
    if target.fingerprint != config.get("fingerprint"):
        raise BadInput(
            f"the target is not the one {run.path} was made with (fingerprint {target.fingerprint[:12]}, the run's is "
            f"{str(config.get('fingerprint'))[:12]}): start a new campaign for a changed network."
        )
    return target


def settings_of(plan: Plan, guide: Guide | None = None) -> Settings:
    """The guide's published settings, over which goes what the user said."""
    said = {key: value for key, value in {**(guide.defaults if guide else {}), **plan.options}.items() if value is not None}
    known = {f.name for f in dataclasses.fields(Settings)}
    for name in said:
        if name not in known:
            from neurotest.errors import near

            raise BadInput(f"fuzz has no option {name!r}. {near(name, known)}")
    if "mutations" in said:
        said["mutations"] = registry.build("mutation", said["mutations"])
    if "validity" in said:
        text = said["validity"]
        presets = registry.find("validity", "valid").presets
        said["validity"] = registry.build("validity", f"valid:preset={text}" if text in presets else text)
    return Settings(**said)


def _prepare(target: Target, source: Source, plan: Plan, budget: Budget) -> Fuzzer:
    guide = build_guide(plan.guide, layers=plan.layers, neuron=plan.neuron)
    settings = settings_of(plan, guide)
    if not isinstance(plan.keep, int) or plan.keep < 0:
        raise BadInput(f"keep={plan.keep!r}: expected an integer >= 0 (images per family).")
    if not plan.disk >= 0:
        raise BadInput(f"disk={plan.disk!r}: expected bytes >= 0.")
    chosen = choose_seeds(target, source, judges := court(target, list(plan.oracle)), keep_wrong=plan.keep_wrong)
    settings.mutations.check(tuple(chosen.x.shape[1:]))
    train = None if plan.train is None else data(plan.train, shape=target.shape)
    context = Context(target=target, train=train, seed=settings.seed, cache=True)
    state = guide.start(context, source.take(chosen.positions))
    made = Fuzzer(target, chosen, state, judges, settings, budget)
    return made.controlled() if plan.control and not isinstance(guide, RandomGuide) else made


def _control(fuzzer: Fuzzer, plan: Plan) -> Tally | None:
    """A random campaign is its own control."""
    if fuzzer.control is not None:
        return fuzzer.control.tally
    return fuzzer.tally if plan.control else None


def _run(driver: Driver, target: Target, plan: Plan, run: Run | None) -> FuzzResult:
    fuzzer = driver.fuzzer
    if run is not None and run["state"] == "done":
        run.reopen()
    with fuzzer:
        stopped = driver.run()
    if stopped == "interrupted":
        where = run.path if run is not None else "(nothing was written)"
        raise Interrupted(STOPPED.format(n=fuzzer.tally.faults, path=where))
    stored = run["classes"] if run is not None else list(target.classes or ())
    found = FuzzResult(
        tally=fuzzer.tally, control=_control(fuzzer, plan), classes=tuple(stored) or None,
        outputs_possible=fuzzer.seeds.classes, set_aside=fuzzer.seeds.set_aside, seeds=len(fuzzer.seeds),
        guide=str(_text(plan.guide)), coverage=fuzzer.guide.value(), stopped=stopped, run=None if run is None else run.path,
        notes=(FULL,) if driver.full else (), details=fuzzer.guide.details(),
    )  # fmt: skip
    if run is not None:
        from neurotest.campaign.shrink import adopt

        adopt(run)
        run.finish(found.to_dict())
        run.export()
    return found
