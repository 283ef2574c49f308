"""What a criterion may know before the first test input: the layers, a profile, training traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import cache_dir
from neurotest.measure.traces import Layout, Values, joined
from neurotest.memory import check_memory
from neurotest.scan import BATCH, Consumer, Progress, scan
from neurotest.target import Profile, Target, Trace, Want


@dataclass(frozen=True, eq=False)
class Traces:
    """What the network did on training data: (n, neurons) values, predicted classes and, if it has them, labels."""

    values: Values
    predicted: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None


@dataclass(eq=False)
class Collector:
    """Keeps every input's joined values and prediction."""

    want: Want
    layout: Layout
    parts: list[Values] = field(default_factory=list)
    predicted: list[NDArray[np.int64]] = field(default_factory=list)
    exact: ClassVar[bool] = True

    def update(self, trace: Trace) -> None:
        self.parts.append(np.array(joined(trace, self.want, self.layout).values))
        self.predicted.append(trace.predictions.cpu().numpy())

    def fresh(self, start: int = 0) -> Collector:
        return Collector(self.want, self.layout)

    def merge(self, other: Collector) -> None:
        self.parts += other.parts
        self.predicted += other.predicted

    def traces(self, labels: NDArray[np.int64] | None) -> Traces:
        return Traces(np.concatenate(self.parts), np.concatenate(self.predicted), labels)


@dataclass(eq=False)
class Context:
    """The target and its training data. Layouts, profiles and traces can be passed instead, for work on stored activations."""

    target: Target | None = None
    train: Source | None = None
    batch: int = BATCH
    seed: int = 0
    cache: bool = False  # keep profiles in the cache directory
    layouts: dict[Want, Layout] = field(default_factory=dict)
    profiles: dict[Want, Profile] = field(default_factory=dict)
    collected: dict[Want, Traces] = field(default_factory=dict)
    progress: Progress | None = None

    def layout(self, want: Want) -> Layout:
        if want not in self.layouts:
            layers = self.need_target().survey().find(want.layers)
            sizes = {layer.name: layer.neurons(want.neuron, inputs=want.inputs) for layer in layers}
            axes = {layer.name: layer.input_axis if want.inputs else layer.axis for layer in layers}
            self.layouts[want] = Layout(sizes, axes)
        return self.layouts[want]

    def profile(self, want: Want, who: str) -> Profile:
        if want not in self.profiles:
            self.gather([want], [], who)
        profile = self.profiles[want]
        if self.target is not None:
            profile.check(self.target)
        expected = dict(self.layout(want).sizes)
        if {name: moments.neurons for name, moments in profile.layers.items()} != expected or profile.want != want:
            raise BadInput("changed", "profile", f"{who}: the profile is of other layers or neurons than {want}: make it again.")
        if not profile.count:
            raise BadInput(
                "empty", "profile", f"{who}: the profile has seen no training input: give training data that is not empty."
            )
        return profile

    def traces(self, want: Want, who: str) -> Traces:
        if want not in self.collected:
            self.gather([], [want], who)
        return self.collected[want]

    def gather(self, profiles: Iterable[Want], traces: Iterable[Want], who: str) -> None:
        """Make what is missing from one pass over the training data."""
        missing = [Profile.empty(self.need_target(), w) for w in dict.fromkeys(profiles) if not self._cached(w)]
        kept = [Collector(w, self.layout(w)) for w in dict.fromkeys(traces) if w not in self.collected]
        if not missing and not kept:
            return
        train = self.need_train(who)
        for collector in kept:  # twice: while the parts are put together
            what = f"keeping {collector.layout.neurons:,} neurons of {len(train):,} training inputs for {who}"
            check_memory(8 * len(train) * collector.layout.neurons, what, "use --neuron channel, fewer --layers or less --train")
        self.scan([*missing, *kept])
        for profile in missing:
            self.profiles[profile.want] = profile
            if self.cache:
                with suppress(BadInput):  # a cache that cannot be written to costs time, nothing else
                    profile.save(self._place(profile.want))
        for collector in kept:
            self.collected[collector.want] = collector.traces(train.labels)

    def scan(self, consumers: Sequence[Consumer]) -> None:
        """One pass over the training data."""
        scan(self.need_target(), self.need_train("the criterion"), consumers, batch=self.batch, progress=self.progress)

    def need_target(self) -> Target:
        if self.target is None:
            raise BadInput("missing", "target", "this criterion runs the network itself: give the target.")
        return self.target

    def need_train(self, who: str) -> Source:
        if self.train is None:
            raise BadInput(
                "missing", "train", f"{who} needs training data: give --train DATA (1,000 inputs are enough to begin with)."
            )
        if not len(self.train):
            raise BadInput("empty", "train", f"{who}: the training data is empty: give --train DATA with at least one input.")
        return self.train

    # -- the cache: a profile depends on the target, on what is recorded and on the training inputs, and on nothing else

    def _cached(self, want: Want) -> bool:
        if want in self.profiles:
            return True
        if not self.cache or self.train is None or not self._place(want).is_file():
            return False
        try:
            self.profiles[want] = Profile.load(self._place(want), self.target)
        except BadInput:  # damaged: it is made again
            return False
        return True

    def _place(self, want: Want) -> Path:
        key = blake2b(digest_size=16)
        about: tuple[Any, ...] = (self.need_target().fingerprint, repr(want), len(self.need_train("the profile")))
        key.update(repr(about).encode())
        key.update(np.ascontiguousarray(self.need_train("the profile").ids()).tobytes())
        return cache_dir() / "profiles" / f"{key.hexdigest()}.json"
