"""NPC: how close inputs come to the decision paths that training data takes through the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.attribute import Relevance
from neurotest.attribute.relevance import RelevancePlan
from neurotest.checks import setting
from neurotest.coverage.bits import PackedState
from neurotest.coverage.criterion import Criterion, Share, Value
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values, checked
from neurotest.registry import register
from neurotest.stats.distances import Points, nearest_other
from neurotest.target import Trace, Want

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
REACH = 2.0  # distances are measured in so many times the greatest one within the cluster


@dataclass(frozen=True, eq=False)
class _AbstractPaths:
    """One row per class and cluster. `members` are the cluster's training activations, where distances are wanted."""

    classes: Ints  # (paths,)
    paths: Bits  # (paths, neurons)
    members: tuple[Values, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.classes)

    def jaccard(self, number: int, paths: Bits, part: slice) -> Floats:
        """Neurons in both over neurons in either; 1 when neither has any: (n,)."""
        mine, theirs = self.paths[number, part], paths[:, part]
        either = np.count_nonzero(theirs | mine, axis=1)
        both = np.count_nonzero(theirs & mine, axis=1)
        return np.where(either > 0, both / np.maximum(either, 1), 1.0)

    def distance(self, number: int, values: Values, part: slice) -> Floats:
        """Distance to the nearest member on the path's neurons, 1 is REACH times the greatest within the cluster: (n,)."""
        here = np.flatnonzero(self.paths[number, part]) + part.start
        if not len(here):
            return np.zeros(len(values))
        members = self.members[number][:, here].astype(np.float64)
        near, _ = Points(members).nearest(values[:, here].astype(np.float64))
        reach = REACH * float(nearest_other(members).max()) if len(members) > 1 else 0.0
        share: Floats = np.minimum(near / reach, 1.0) if reach > 0 else (near > 0).astype(np.float64)
        return share


def _build(paths: Bits, classes: Ints, right: Bits, values: Values | None, *, clusters: int, member: float) -> _AbstractPaths:
    """Cluster the paths of each class's correctly classified inputs and keep what `member` of a cluster share."""
    rows: list[tuple[int, Bits]] = []
    members: list[Values] = []
    few = []
    for number in np.unique(classes):
        here = np.flatnonzero((classes == number) & right)
        if not len(here):
            few.append(int(number))
            continue
        for group in _clusters(paths[here], clusters):
            chosen = here[group]
            rows.append((int(number), paths[chosen].mean(axis=0) >= member))
            if values is not None:
                members.append(values[chosen])
    if not rows:
        raise BadInput(
            "empty",
            "train",
            "npc needs correctly classified training inputs: the target classifies none of the given ones correctly.",
        )
    notes = (f"class {', '.join(map(str, few))} has no correctly classified training input and no path.",) if few else ()
    order = np.array([c for c, _ in rows], dtype=np.int64)
    return _AbstractPaths(order, np.stack([path for _, path in rows]), tuple(members), notes)


def _clusters(paths: Bits, clusters: int) -> list[Ints]:
    """Positions of each cluster's inputs; fewer clusters where there are fewer different paths."""
    different = len(np.unique(paths, axis=0))
    if min(clusters, different) < 2:
        return [np.arange(len(paths))]
    from sklearn.cluster import KMeans

    labels = KMeans(min(clusters, different), n_init=10, random_state=0).fit_predict(paths.astype(np.float64))
    return [np.flatnonzero(labels == number) for number in np.unique(labels)]


ROOT = Want(layers="", keep="map", inputs=True)  # the input of the module itself
_READ = "_decision"
UNLABELLED = "the training data has no labels: every input counts as classified correctly."
RULES = {"lrp": "layer-wise relevance propagation", "gradient": "gradient times activation, the substitute"}


def _critical(relevance: Values, share: float, *, take: str = "positive") -> Bits:
    """The fewest neurons, most relevant first, that hold `share` of a layer's positive relevance: (n, neurons).

    take: `positive` never takes a neuron that speaks against the class; `stopping` takes in the neuron at which the search stops,
    as the published code does.
    """
    order = np.argsort(-relevance, axis=1, kind="stable")
    ranked = np.take_along_axis(relevance, order, axis=1)
    goal = share * np.maximum(relevance, 0).sum(axis=1, keepdims=True)
    stops = (np.cumsum(ranked, axis=1) >= goal) | (ranked <= 0)
    last = np.where(stops.any(axis=1), stops.argmax(axis=1), relevance.shape[1] - 1)
    chosen = np.arange(relevance.shape[1]) <= last[:, None]
    if take == "positive":
        chosen &= ranked > 0
    result = np.zeros(relevance.shape, dtype=bool)
    np.put_along_axis(result, order, chosen, axis=1)
    return result


@register(
    "criterion",
    "npc",
    main="variant",
    paper="Xie et al., NPC: Neuron Path Coverage via Characterizing Decision Logic of Deep Neural Networks, TOSEM 2022",
    cost="two forward passes and a backward pass per input; keeps one path per class and cluster, for `variant=activation` "
    "also the training activations",
    presets={"code": {"edges": "ceil", "take": "stopping"}},
    differs="Layer-wise relevance where the network is one chain of modules, gradient times activation elsewhere "
    "(`rule=gradient`; residual networks always), and which of the two was used is reported. Buckets are "
    "floor(similarity * buckets), so that exactly as many exist as are counted; the published code takes the ceiling "
    "(`edges=ceil`), which makes one more, and takes the neuron at which the search for critical neurons stops "
    "(`take=stopping`). Abstract paths keep neurons of at least `member` of a cluster, without the code's "
    "pseudo-counts. The distance of `variant=activation` is to the nearest training input of the cluster, measured "
    "in twice the greatest such distance within the cluster, because the paper's scale depends on the evaluated set.",
)
class NPC(Criterion):
    """Share of the buckets of closeness to the abstract decision paths of the predicted class that inputs fall into.

    An input's path: per layer the fewest neurons that hold `share` of the positive relevance. Abstract paths: correctly
    classified training inputs of a class in `clusters` clusters, each with the neurons that at least `member` of its inputs have.
    variant: `structure` buckets the Jaccard similarity of paths, `activation` the distance of activations on the path.
    scope: `network` compares whole paths, `layer` each layer. edges: `floor` or `ceil`. take: `positive` or `stopping`.
    rule, beta: how relevance is computed, see the relevance of `neurotest.attribute`.
    """

    layers: str = "post_activation"
    variant: Literal["structure", "activation"] = "structure"
    scope: Literal["network", "layer"] = "network"
    share: float = setting(0.7, "papers use 0.7", above=0, most=1)
    clusters: int = setting(4, "papers use 1, 4 and 7")
    member: float = setting(0.7, "papers use 0.7", above=0, most=1)
    buckets: int = setting(100, "the paper uses 100")
    edges: Literal["floor", "ceil"] = "floor"
    take: Literal["positive", "stopping"] = "positive"
    rule: Literal["auto", "lrp", "gradient"] = "auto"
    beta: float = 0.5

    needs: ClassVar[str] = "source"
    shrink: ClassVar[str] = "fewer training inputs"
    obligations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neuron != "channel":
            raise BadInput("unsuitable", "neuron", f"neuron={self.neuron!r}: decision paths are made of channels; leave it out.")
        _ = self.relevance

    @property
    def relevance(self) -> Relevance:
        return Relevance(layers=self.layers, rule=self.rule, beta=self.beta)

    @property
    def want(self) -> Want:
        return ROOT

    def start(self, context: Context) -> _PathState:
        source = context.need_train("npc")
        plan = self.relevance.plan(context.need_target())
        layout = Layout({layer.name: layer.neurons() for layer in plan.layers})
        reader = _Reader(self, plan, layout)
        collected = _Paths(reader)
        context.scan([collected])
        paths, values, predicted = collected.joined()
        right = np.ones(len(paths), dtype=bool) if source.labels is None else predicted == source.labels
        keep = values if self.variant == "activation" else None
        abstract = _build(paths, predicted, right, keep, clusters=self.clusters, member=self.member)
        notes = () if source.labels is not None else (UNLABELLED,)
        return _PathState(self, reader, abstract, np.logical_not(paths.any(axis=0)), notes)

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return train * layout.neurons * (5 if self.variant == "activation" else 1)


@dataclass(frozen=True)
class _Decision:
    """What inputs did: critical neurons and activations side by side for all layers."""

    path: Bits  # (n, neurons)
    values: Values  # (n, neurons)


class _Reader:
    """Paths of the inputs of a trace, computed once per trace."""

    def __init__(self, criterion: NPC, plan: RelevancePlan, layout: Layout) -> None:
        self.criterion, self.plan, self.layout = criterion, plan, layout

    def __call__(self, trace: Trace) -> _Decision:
        key = (self.criterion.relevance, self.criterion.share, self.criterion.take)
        kept = vars(trace).setdefault(_READ, {})
        if key not in kept:
            kept[key] = self._read(trace)
        return kept[key]  # type: ignore[no-any-return]

    def _read(self, trace: Trace) -> _Decision:
        (x,) = trace[ROOT].values()
        attribution = self.plan(x)
        cut = partial(_critical, share=self.criterion.share, take=self.criterion.take)
        relevance = {name: attribution.relevance[name].cpu().numpy() for name in self.layout.names}
        values = np.concatenate([attribution.activation[name].cpu().numpy() for name in self.layout.names], axis=1)
        return _Decision(np.concatenate([cut(np.nan_to_num(r)) for r in relevance.values()], axis=1), values)


@dataclass
class _Paths:
    """Collects the paths of the training data."""

    reader: _Reader
    want: Want = ROOT
    decisions: list[_Decision] = field(default_factory=list)
    predicted: list[NDArray[np.int64]] = field(default_factory=list)

    def update(self, trace: Trace) -> None:
        self.decisions.append(self.reader(trace))
        self.predicted.append(trace.predictions.cpu().numpy())

    def joined(self) -> tuple[Bits, Values, NDArray[np.int64]]:
        paths, values = ([getattr(d, name) for d in self.decisions] for name in ("path", "values"))
        return np.concatenate(paths), np.concatenate(values), np.concatenate(self.predicted)


class _PathState(PackedState):
    """One bit per abstract path (and layer) and bucket."""

    criterion: NPC

    def __init__(self, criterion: NPC, reader: _Reader, abstract: _AbstractPaths, unused: Bits, notes: tuple[str, ...]) -> None:
        layout = reader.layout
        super().__init__(criterion, layout)
        self.reader, self.abstract, self.unused, self._notes = reader, abstract, unused, notes
        self.parts = list(layout.slices.values()) if criterion.scope == "layer" else [slice(0, layout.neurons)]
        self.bits = np.zeros((len(abstract), len(self.parts), criterion.buckets + (criterion.edges == "ceil")), dtype=bool)

    def read(self, trace: Trace) -> Joined:
        return checked(self.reader(trace).values, self.layout.starts)

    def _hits(self, trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which input hits which bit: (hits,) each."""
        decision = self.reader(trace)
        predicted = trace.predictions.cpu().numpy()
        finite = np.isfinite(decision.values).all(axis=1)
        rows, flat = [], []
        for path in range(len(self.abstract)):
            here = np.flatnonzero((predicted == self.abstract.classes[path]) & finite)
            if not len(here):
                continue
            for part_number, part in enumerate(self.parts):
                bucket = self._bucket(self._closeness(decision, here, path, part))
                rows.append(here)
                flat.append((path * len(self.parts) + part_number) * self.bits.shape[2] + bucket)
        nothing = np.empty(0, dtype=np.int64)
        return np.concatenate([*rows, nothing]), np.concatenate([*flat, nothing])

    def obligations(self, trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which input falls into which bucket, inputs in order."""
        rows, flat = self._hits(trace)
        order = np.argsort(rows, kind="stable")
        return rows[order], flat[order]

    def _closeness(self, decision: _Decision, here: NDArray[np.int64], path: int, part: slice) -> NDArray[np.float64]:
        """0 .. 1 for each of some inputs and one abstract path."""
        if self.criterion.variant == "activation":
            return self.abstract.distance(path, decision.values[here], part)
        return self.abstract.jaccard(path, decision.path[here], part)

    def _bucket(self, closeness: NDArray[np.float64]) -> NDArray[np.int64]:
        m = self.criterion.buckets
        if self.criterion.edges == "ceil":
            return np.ceil(closeness / (1 / m)).astype(np.int64).clip(0, m)
        return np.floor(closeness * m + 1e-9).astype(np.int64).clip(0, m - 1)  # 0.29 * 100 is 28.999999999999996

    def _update(self, joined: Joined, trace: Trace) -> None:
        self.bits.reshape(-1)[self._hits(trace)[1]] = True

    @property
    def total(self) -> int:
        return max(1, len(self.abstract) * len(self.parts) * self.criterion.buckets)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        rows, flat = self._hits(trace)
        new = ~self.bits.reshape(-1)[flat]
        return np.bincount(rows[new], minlength=len(trace.logits)) / self.total

    def value(self) -> Value:
        dead = {name: int(np.count_nonzero(self.unused[place])) for name, place in self.layout.slices.items()}
        whole = Share.ratio(int(np.count_nonzero(self.bits)), self.total, sum(dead.values()))
        layers = {}
        if self.criterion.scope == "layer":
            each = np.count_nonzero(self.bits, axis=(0, 2))
            total = self.total // len(self.parts)
            layers = {name: Share.ratio(int(n), total, dead[name]) for name, n in zip(self.layout.names, each, strict=True)}
        notes = (*self.warnings(), *self._notes, *self.abstract.notes, f"relevance by {RULES[self.reader.plan.rule]}.")
        return Value(whole, layers, {}, self.nonfinite(), notes)
