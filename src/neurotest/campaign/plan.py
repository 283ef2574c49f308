"""Settings of a campaign or a swarm: stored in its run as text, read from there on resume, replay and explain."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import Tensor

from neurotest import registry
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.generate.fuzz.guides import CoverageGuide, Guide, build_guide
from neurotest.generate.fuzz.settings import Settings
from neurotest.generate.swarm import PRESETS, Fitness, controls
from neurotest.generate.swarm import Settings as SwarmLoop
from neurotest.jobs.life import other_setting
from neurotest.jobs.methods import read_method, stored_method
from neurotest.jobs.opening import open_target, stored_spec
from neurotest.mutate.base import Mutations
from neurotest.mutate.validity import Validity
from neurotest.runs.rows import plain
from neurotest.runs.store import Run
from neurotest.settings.declared import by_name, declared
from neurotest.settings.generate import FuzzSettings, SwarmSettings
from neurotest.target import Target

Chosen = TypeVar("Chosen", bound=Any)
MUTATIONS = "mutation"
SOUND = {"mutations": "audio", "validity": "audible"}  # what published guides bring along is for pictures


@dataclass(frozen=True, kw_only=True)
class Plan(ABC, Generic[Chosen]):
    """The settings of a campaign or a swarm. named: those of its loop that the user named; the others may come from elsewhere."""

    kind: ClassVar[Any]

    settings: Chosen
    named: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, Any], **more: Any) -> Self:
        """The plan of what is given, and not None."""
        return cls(settings=cls.kind.of(given), named=frozenset(cls.kind.of_part("loop", given)), **more)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the loop that the user named."""
        return {name: getattr(self.settings, name) for name in declared(self.kind) if name in self.named}

    def but(self, **changes: Any) -> Self:
        """The plan with other settings."""
        named = self.named | self.kind.of_part("loop", changes).keys()
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **changes), named=named)

    def config(self) -> dict[str, Any]:
        """The settings as a run stores them."""
        values = {name: _stored_setting(name, value) for name, value in self.settings.stored().items()}
        return {**values, "options": {name: _stored_setting(name, value) for name, value in self.options.items()}}

    @abstractmethod
    def effective(self) -> Any:
        """The settings that the work uses, defaults included."""

    def same(self, name: str, before: Any, after: Any) -> bool:
        """Whether two different stored values of a setting mean the same."""
        return False

    def repeated(self, run: Run, given: Mapping[str, Any]) -> Self:
        """This plan, with the settings repeated on resume; one that differs is refused. What a run cannot store is replaced."""
        known = declared(self.kind)
        new = self.but(**{name: value for name, value in given.items() if value is not None and known[name].part != "budget"})
        loop = {name: getattr(self.settings, name) for name, one in known.items() if one.part == "loop"}
        same_loop = dataclasses.replace(new.but(**loop), named=self.named)
        before, after = (plain(config.pop("options") | config) for config in (self.config(), new.config()))
        for name, value in after.items():
            stored = before.get(name)
            if stored == value or (name == "train" and stored is None) or self.same(name, stored, value):
                continue
            if known[name].part == "loop":  # a default that is spelled out is no change
                now, then = (getattr(plan.effective(), name) for plan in (new, same_loop))
                if now == then:
                    continue
                stored = then if stored is None else stored
            raise other_setting(run, name, value, stored)
        return new


def _stored_setting(name: str, value: Any) -> Any:
    """A setting as a run stores it: methods and data as text."""
    if name == "train":
        return stored_spec(value)
    return [stored_method(one) for one in value] if isinstance(value, (tuple, list)) else stored_method(value)


@dataclass(frozen=True, kw_only=True)
class FuzzPlan(Plan[FuzzSettings]):
    """base: the mutations, where neither the user nor the guide names any."""

    kind = FuzzSettings
    base: str = dataclasses.field(default="rules95:units=image", compare=False)

    def config(self) -> dict[str, Any]:
        guide = self.settings.guide
        criterion = guide.criterion if isinstance(guide, CoverageGuide) else guide
        return {**super().config(), "guide": stored_method(criterion)}

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> FuzzPlan:
        """The plan of a stored campaign; a method the run could not store stays as it is, and is refused where it is needed.

        Runs that do not name their mutations are of versions that had strengths in pixels only.
        """
        try:
            values = {name: config[name] for name in by_name(FuzzSettings) if name in config}  # merged swarms lack some
            control, islands = bool(config.get("control")), config.get("islands", 1)
            return cls.of(
                {**values, **config["options"], "oracle": tuple(config["oracle"]), "control": control, "islands": islands},
                base="rules95",
            )
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
        judge = self.settings.judge
        if isinstance(judge, Mapping):
            read_method("judge", judge)  # refuses, and says that it must be given again
        return None if judge is None else open_target(judge)

    def read_guide(self) -> Guide:
        return read_guide(self.settings.guide, layers=self.settings.layers, neuron=self.settings.neuron)

    def effective(self) -> Settings:
        return self.loop_settings(self.read_guide())

    def loop_settings(self, guide: Guide, *, sound: bool = False) -> Settings:
        """The guide's published settings, over which the user's options go; of sound, its mutations and validity."""
        defaults = {"mutations": self.base, **guide.defaults, **(SOUND if sound else {})}
        options = {**defaults, **self.options}
        return Settings(**{name: _option(name, value) for name, value in options.items()})

    def fitted(self, settings: Settings, seeds: Tensor) -> tuple[FuzzPlan, Settings]:
        """With mutations, and the strengths of validity, that suit the data: what is stored, and what the work uses."""
        mutations = settings.mutations.fitted(seeds)
        changes: dict[str, Any] = {"mutations": mutations}
        contrast = getattr(mutations, "contrast", None)
        if contrast is not None and "validity" not in self.options and isinstance(settings.validity, Validity):
            changes["validity"] = dataclasses.replace(settings.validity, contrast=contrast)
        if mutations.audio:
            changes["validity"] = settings.validity
        return self.but(**changes), dataclasses.replace(settings, **changes)

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
class SwarmPlan(Plan[SwarmSettings]):
    kind = SwarmSettings

    def __post_init__(self) -> None:
        if self.settings.preset not in PRESETS:
            preset = self.settings.preset
            raise BadInput("unknown-name", "preset", f"preset={preset!r}: no such preset of a swarm. {near(preset, PRESETS)}")
        for name in self.settings.beside:
            if name not in controls.CONTROL_NAMES:
                raise BadInput(
                    "unknown-name", "beside", f"beside={name!r}: no such control. {near(name, controls.CONTROL_NAMES)}"
                )

    @classmethod
    def read(cls, run: Run, config: Mapping[str, Any]) -> SwarmPlan:
        try:
            plan = config["plan"]
            return cls.of({**plan, **plan["options"], "beside": tuple(plan["beside"])})
        except (KeyError, TypeError):
            raise BadInput("damaged", "config", f"{run.path}: its configuration is not that of a swarm: it is damaged.") from None

    def same(self, name: str, before: Any, after: Any) -> bool:
        return name == "fitness" and isinstance(after, str) and self.read_fitness() == read_method("fitness", after)

    def oracle(self, target: Target, source: Source) -> str:
        """A fault is another prediction than the label or, with labels_from='prediction', than that for the seed; of a regression
        value, one that is far from that for the seed."""
        if target.bins is not None:
            return "metamorphic"
        return "label" if source.labels is not None and self.settings.labels_from == "data" else "metamorphic"

    def read_fitness(self) -> Fitness:
        fitness = self.settings.fitness or PRESETS[self.settings.preset].get("fitness", "excitability")
        built: Fitness = read_method("fitness", fitness) if isinstance(fitness, (str, Mapping)) else fitness
        return built

    def effective(self) -> SwarmLoop:
        """What the user named over what the preset says."""
        preset = {name: value for name, value in PRESETS[self.settings.preset].items() if name != "fitness"}
        options = self.options
        if isinstance(options.get("inertia"), list):
            options["inertia"] = tuple(options["inertia"])
        return SwarmLoop(**{**preset, **options})
