"""Settings of a campaign or a swarm: stored in its run as text, read from there on resume, replay and explain."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from neurotest import registry
from neurotest.checks import integer
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.generate.fuzz.guides import CoverageGuide, Guide, build_guide
from neurotest.generate.fuzz.settings import Settings
from neurotest.generate.swarm import PRESETS, Fitness, controls
from neurotest.generate.swarm import Settings as SwarmSettings
from neurotest.jobs.life import other_setting
from neurotest.jobs.methods import read_method, stored_method
from neurotest.jobs.opening import open_target, stored_spec
from neurotest.mutate.base import Mutations
from neurotest.mutate.validity import Validity
from neurotest.runs.plain import plain
from neurotest.runs.store import Run
from neurotest.target import Target

MUTATIONS = "mutation"
MOST_ISLANDS = 4096
SOUND = {"mutations": "audio", "validity": "audible"}  # what published guides bring along is for pictures
PLAIN = ("keep_wrong", "limit", "layers", "neuron", "keep", "disk", "control", "islands")


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """Settings beside target, seeds and budget. options: fields of `Settings` that the user named."""

    train: AnyData | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keep_wrong: bool = False
    limit: int | None = None
    layers: str | None = None

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The settings as a run stores them."""

    @abstractmethod
    def effective(self) -> Any:
        """The settings that the work uses, defaults included."""

    def same(self, name: str, before: Any, after: Any) -> bool:
        """Whether two different stored values of a setting mean the same."""
        return False

    def repeated(self, run: Run, settings: Mapping[str, Any]) -> Self:
        """This plan, with the settings repeated on resume; one that differs is refused. What a run cannot store is replaced."""
        new_options = {name: value for name, value in settings["options"].items() if value is not None}
        changes = {name: value for name, value in settings.items() if value is not None}
        new = dataclasses.replace(self, **{**changes, "options": {**self.options, **new_options}})
        before, after = (plain(config.pop("options") | config) for config in (self.config(), new.config()))
        for name, value in after.items():
            stored = before.get(name)
            if stored == value or (name == "train" and stored is None) or self.same(name, stored, value):
                continue
            if name in new_options:  # a default that is spelled out is no change
                now, then = (getattr(plan.effective(), name) for plan in (new, dataclasses.replace(new, options=self.options)))
                if now == then:
                    continue
                stored = then if stored is None else stored
            raise other_setting(run, name, value, stored)
        return new


def _options(command: str, settings: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not None; one that `settings` has no field for is refused."""
    fields = {f.name for f in dataclasses.fields(settings)}
    for name, value in options.items():
        if value is not None and name not in fields:
            raise BadInput("unknown-option", name, f"{command} has no option {name!r}. {near(name, fields)}")
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class FuzzPlan(Plan):
    """keep: images per family. disk: bytes of images in all. islands: fuzzers that share the seeds."""

    guide: Any = "goals"
    oracle: tuple[Any, ...] = ()  # what fits the target
    neuron: str | None = None
    keep: int = 5
    disk: float = 200e6
    control: bool = True
    islands: int = 1
    judge: Any = None  # a second network, or its spec
    # The mutations, where neither the user nor the guide names any.
    base: str = dataclasses.field(default="rules95:units=image", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.keep, int) or self.keep < 0:
            raise BadInput("out-of-range", "keep", f"keep={self.keep!r}: expected an integer >= 0 (images per family).")
        if not self.disk >= 0:
            raise BadInput("out-of-range", "disk", f"disk={self.disk!r}: expected bytes >= 0.")
        integer("islands", self.islands, 1, "8 suit up to 8 workers", most=MOST_ISLANDS)

    def config(self) -> dict[str, Any]:
        guide = self.guide.criterion if isinstance(self.guide, CoverageGuide) else self.guide
        return {
            "guide": stored_method(guide), "oracle": [stored_method(oracle) for oracle in self.oracle],
            "train": stored_spec(self.train), "options": {name: stored_method(value) for name, value in self.options.items()},
            "judge": stored_method(self.judge), **{name: getattr(self, name) for name in PLAIN},
        }  # fmt: skip

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> FuzzPlan:
        """The plan of a stored campaign; a method the run could not store stays as it is, and is refused where it is needed.

        Runs that do not name their mutations are of versions that had strengths in pixels only.
        """
        try:
            values = {name: config[name] for name in PLAIN if name in config and name != "control"}  # merged swarms lack some
            return cls(
                guide=config["guide"], oracle=tuple(config["oracle"]), train=config.get("train"), options=config["options"],
                control=bool(config.get("control")), base="rules95", judge=config.get("judge"), **values,
            )  # fmt: skip
        except (KeyError, TypeError):
            raise BadInput(
                "damaged", "config", "the run's configuration is not that of a campaign: it is damaged or of another command."
            ) from None

    def same(self, name: str, before: Any, after: Any) -> bool:
        """Two texts may name equal methods: `kmnc:1000` and `kmnc`."""
        if not isinstance(before, str) or not isinstance(after, str):
            return False
        if name == "guide":
            return bool(_guide_key(before) == _guide_key(after))
        if name not in ("mutations", "validity"):
            return False
        old, new = _option(name, before), _option(name, after)
        return bool(old == new or (name == "mutations" and old.unfitted() == new))

    def read_judge(self) -> Target | None:
        if isinstance(self.judge, Mapping):
            read_method("judge", self.judge)  # refuses, and says that it must be given again
        return None if self.judge is None else open_target(self.judge)

    def read_guide(self) -> Guide:
        return read_guide(self.guide, layers=self.layers, neuron=self.neuron)

    def effective(self) -> Settings:
        return self.settings(self.read_guide())

    def settings(self, guide: Guide, *, sound: bool = False) -> Settings:
        """The guide's published settings, over which the user's options go; of sound, its mutations and validity."""
        defaults = {"mutations": self.base, **guide.defaults, **(SOUND if sound else {})}
        options = _options("fuzz", Settings, {**defaults, **self.options})
        return Settings(**{name: _option(name, value) for name, value in options.items()})

    def fitted(self, settings: Settings, seeds: Tensor) -> tuple[FuzzPlan, Settings]:
        """With mutations, and the strengths of validity, that suit the data: what is stored, and what the work uses."""
        mutations = settings.mutations.fitted(seeds)
        changes: dict[str, Any] = {"mutations": mutations}
        contrast = getattr(mutations, "contrast", None)
        if contrast is not None and "validity" not in self.options and isinstance(settings.validity, Validity):
            changes["validity"] = dataclasses.replace(settings.validity, contrast=contrast)
        if mutations.sound:
            changes["validity"] = settings.validity
        plan = dataclasses.replace(self, options={**self.options, **changes})
        return plan, dataclasses.replace(settings, **changes)

    def mutations(self) -> Mutations:
        """The mutations alone, to make faults again: the guide need not be one that can be read back."""
        text = self.options.get("mutations")
        if text is None:
            text = self.read_guide().defaults.get("mutations", self.base)
        mutations: Mutations = _option("mutations", text)
        return mutations


def read_guide(guide: Any, **overrides: str | None) -> Guide:
    """A guide, or the one that a run names; criteria of the first versions stand there as their repr."""
    if isinstance(guide, Mapping):
        read_method("guide", guide)  # refuses, and says that it must be given again
    if isinstance(guide, str) and registry.parse(guide)[0] not in registry.names("guide") | registry.names("criterion"):
        class_name = registry.parse(guide)[0]
        for kind in ("guide", "criterion"):
            if any(entry.make.__name__ == class_name for entry in registry.entries(kind).values()):
                return build_guide(read_method(kind, guide), **overrides)
    return build_guide(guide, **overrides)


def _guide_key(guide: str) -> Any:
    built = read_guide(guide)
    return built.criterion if isinstance(built, CoverageGuide) else built


def _option(name: str, value: Any) -> Any:
    """An option of `Settings`; mutations and validity may be text."""
    if name == "mutations" and isinstance(value, (str, Mapping)):
        return read_method(MUTATIONS, value)
    if name == "validity" and isinstance(value, (str, Mapping)):
        presets = registry.find("validity", "valid").presets
        return read_method("validity", f"valid:preset={value}" if isinstance(value, str) and value in presets else value)
    return value


@dataclass(frozen=True, kw_only=True)
class SwarmPlan(Plan):
    """The settings of a swarm; `beside` names its controls."""

    fitness: Any = None
    preset: str = "default"
    neuron: str = "channel"
    labels_from: str = "data"
    beside: tuple[str, ...] = tuple(controls.NAMES)

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise BadInput(
                "unknown-name", "preset", f"preset={self.preset!r}: no such preset of a swarm. {near(self.preset, PRESETS)}"
            )
        if self.labels_from not in ("data", "prediction"):
            raise BadInput("out-of-range", "labels_from", f"labels_from={self.labels_from!r}: expected data or prediction.")
        for name in self.beside:
            if name not in controls.NAMES:
                raise BadInput("unknown-name", "beside", f"beside={name!r}: no such control. {near(name, controls.NAMES)}")

    def config(self) -> dict[str, Any]:
        changes = {"fitness": stored_method(self.fitness), "train": stored_spec(self.train), "beside": list(self.beside)}
        return {**vars(self), **changes}

    @classmethod
    def read(cls, run: Run, config: Mapping[str, Any]) -> SwarmPlan:
        try:
            return cls(**{**config["plan"], "beside": tuple(config["plan"]["beside"])})
        except (KeyError, TypeError):
            raise BadInput("damaged", "config", f"{run.path}: its configuration is not that of a swarm: it is damaged.") from None

    def same(self, name: str, before: Any, after: Any) -> bool:
        return name == "fitness" and isinstance(after, str) and self.read_fitness() == read_method("fitness", after)

    def oracle(self, target: Target, source: Source) -> str:
        """A fault is another prediction than the label or, with labels_from='prediction', than that for the seed; of a quantity,
        one that is far from that for the seed."""
        if target.bins is not None:
            return "metamorphic"
        return "label" if source.labels is not None and self.labels_from == "data" else "metamorphic"

    def read_fitness(self) -> Fitness:
        fitness = self.fitness or PRESETS[self.preset].get("fitness", "excitability")
        built: Fitness = read_method("fitness", fitness) if isinstance(fitness, (str, Mapping)) else fitness
        return built

    def effective(self) -> SwarmSettings:
        return self.settings()

    def settings(self) -> SwarmSettings:
        options = _options("swarm", SwarmSettings, self.options)
        preset = {name: value for name, value in PRESETS[self.preset].items() if name != "fitness"}
        if isinstance(options.get("inertia"), list):
            options["inertia"] = tuple(options["inertia"])
        return SwarmSettings(**{**preset, **options})
