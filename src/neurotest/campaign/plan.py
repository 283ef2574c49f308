"""What a campaign was asked to do: stored in its run as text, made again from there on resume, replay and explain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neurotest import registry
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.generate.fuzz.guides import CoverageGuide, Guide, build_guide
from neurotest.generate.fuzz.settings import Settings
from neurotest.jobs.life import other_setting
from neurotest.jobs.methods import read_method, stored_method
from neurotest.jobs.opening import stored_spec
from neurotest.mutate.base import Mutations
from neurotest.runs.store import Run

MUTATIONS = "mutation"
PLAIN = ("keep_wrong", "limit", "layers", "neuron", "keep", "disk", "control")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a campaign beside target, seeds and budget. options: fields of `Settings` that were given."""

    guide: Any = "nlc"
    oracle: tuple[Any, ...] = ("label",)
    train: Source | str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keep_wrong: bool = False
    limit: int | None = None
    layers: str | None = None
    neuron: str | None = None
    keep: int = 5
    disk: float = 200e6
    control: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.keep, int) or self.keep < 0:
            raise BadInput(f"keep={self.keep!r}: expected an integer >= 0 (images per family).")
        if not self.disk >= 0:
            raise BadInput(f"disk={self.disk!r}: expected bytes >= 0.")

    def config(self) -> dict[str, Any]:
        guide = self.guide.criterion if isinstance(self.guide, CoverageGuide) else self.guide
        return {
            "guide": stored_method(guide), "oracle": [stored_method(one) for one in self.oracle],
            "train": stored_spec(self.train), "options": {name: stored_method(value) for name, value in self.options.items()},
            **{name: getattr(self, name) for name in PLAIN},
        }  # fmt: skip

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Plan:
        """The plan of a stored campaign; what a run cannot hold stays as it is stored, and is refused where it is needed."""
        try:
            values = {name: config[name] for name in PLAIN if name in config and name != "control"}  # merged swarms lack some
            return cls(
                guide=config["guide"], oracle=tuple(config["oracle"]), train=config.get("train"), options=config["options"],
                control=bool(config.get("control")), **values,
            )  # fmt: skip
        except (KeyError, TypeError):
            raise BadInput("the run's configuration is not that of a campaign: it is damaged or of another command.") from None

    def repeated(self, run: Run, again: Mapping[str, Any]) -> Plan:
        """The stored plan, after what is said again on resume was compared with it; objects a run cannot hold are taken in."""
        values = {**dict(again), "options": {k: v for k, v in again["options"].items() if v is not None}}
        new = dataclasses.replace(self, **{name: value for name, value in values.items() if value is not None})
        new = dataclasses.replace(new, options={**self.options, **values["options"]})
        stored, now = self.config(), new.config()
        stored_options, options = stored.pop("options"), now.pop("options")
        for name, before, after in (
            *((name, stored[name], now[name]) for name in stored),
            *((name, stored_options.get(name), value) for name, value in options.items()),
        ):
            if before != after and not self._equal(name, before, after) and not (name == "train" and before is None):
                raise other_setting(run, name, after, before)
        return new

    def _equal(self, name: str, before: Any, after: Any) -> bool:
        """Whether two texts name equal methods: `kmnc:1000` and `kmnc`."""
        if not isinstance(before, str) or not isinstance(after, str):
            return False
        if name == "guide":
            return bool(_guide_key(before) == _guide_key(after))
        if name in ("mutations", "validity"):
            return bool(_option(name, before) == _option(name, after))
        return False

    def read_guide(self) -> Guide:
        return read_guide(self.guide, layers=self.layers, neuron=self.neuron)

    def settings(self, guide: Guide | None = None) -> Settings:
        """The guide's published settings, over which goes what the user said."""
        values = {k: v for k, v in {**(guide.defaults if guide else {}), **self.options}.items() if v is not None}
        fields = {f.name for f in dataclasses.fields(Settings)}
        for name in values:
            if name not in fields:
                raise BadInput(f"fuzz has no option {name!r}. {near(name, fields)}")
        return Settings(**{name: _option(name, value) for name, value in values.items()})

    def space(self) -> Mutations:
        """The mutations alone, for making faults again: the guide need not be one that can be made again."""
        text = self.options.get("mutations")
        if text is None:
            text = self.read_guide().defaults.get("mutations", "rules95")
        space: Mutations = _option("mutations", text)
        return space


def read_guide(guide: Any, **overrides: str | None) -> Guide:
    """A guide, or the one that a run names; criteria of the first versions stand there as their repr."""
    if isinstance(guide, Mapping):
        read_method("guide", guide)  # says that it must be given again
    if isinstance(guide, str) and registry.parse(guide)[0] not in {**registry.entries("guide"), **registry.entries("criterion")}:
        named = registry.parse(guide)[0]
        kind = "guide" if any(e.make.__name__ == named for e in registry.entries("guide").values()) else "criterion"
        if any(entry.make.__name__ == named for entry in registry.entries(kind).values()):
            guide = read_method(kind, guide)
    return build_guide(guide, **overrides)


def _guide_key(guide: str) -> Any:
    built = read_guide(guide)
    return built.criterion if isinstance(built, CoverageGuide) else built


def _option(name: str, value: Any) -> Any:
    """An option of `Settings`; mutations and validity may be text."""
    if name == "mutations":
        return read_method(MUTATIONS, value) if isinstance(value, (str, Mapping)) else value
    if name == "validity" and isinstance(value, (str, Mapping)):
        presets = registry.find("validity", "valid").presets
        return read_method("validity", f"valid:preset={value}" if isinstance(value, str) and value in presets else value)
    return value
