"""One pass, many consumers: each batch is forwarded once and its trace is handed to everybody who reads it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest import interrupts
from neurotest.callable_module import callable_module
from neurotest.data.ahead import one_ahead
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, check_classes, check_shape
from neurotest.data.spec import data
from neurotest.errors import BadInput, near
from neurotest.memory import check_memory
from neurotest.public import public
from neurotest.target import Probe, Profile, Target, Trace, Want
from neurotest.target.load import load
from neurotest.target.outputs import Bins

BATCH = 250  # on two cores LeNets and ResNet-20 gain nothing beyond
BATCH_BYTES = 1 << 26  # bytes of a batch of inputs: those of photographs come in parts
Progress = Callable[[int, int], None]  # done, total


class Consumer(Protocol):
    """What accumulates over traces. `want` says what it needs recorded; None when logits are enough."""

    @property
    def want(self) -> Want | None: ...

    def update(self, trace: Trace) -> None: ...


@dataclass(frozen=True)
class Batch:
    """Inputs that are forwarded together."""

    index: np.ndarray  # (n,) positions in the source
    x: Tensor  # (n, *shape) in the target's bounds

    def __getitem__(self, rows: slice) -> Batch:
        return Batch(self.index[rows], self.x[rows])


def batches(
    target: Target, source: Source, *, batch: int = BATCH, order: np.ndarray | None = None
) -> Generator[Batch, None, None]:
    """The source in batches ready for the target, in `order` (default: as it lies); a batch of large inputs in several parts.

    Of a source that decodes its inputs the next part is read in a thread while the caller works on this one.
    """
    if batch < 1:
        raise BadInput("out-of-range", "batch", f"batch={batch}: expected an integer >= 1.")
    order = np.arange(len(source)) if order is None else order
    most = max(1, BATCH_BYTES // (4 * math.prod(source.shape)))
    interrupts.check()
    parts = _parts(order, batch, most)
    with closing(one_ahead(source.read, parts) if source.decodes else ((index, source.read(index)) for index in parts)) as rows:
        for index, x in rows:
            interrupts.check()
            yield Batch(index, target.prepare(x))


def _parts(order: np.ndarray, batch: int, most: int) -> Iterator[np.ndarray]:
    """Positions that are read together: a batch, or at most so many of it."""
    for start in range(0, len(order), batch):
        whole = order[start : start + batch]
        for part in range(0, len(whole), most):
            yield whole[part : part + most]


def read(target: Target, source: AnyData, *, limit: int | None = None, strict: bool = False) -> Source:
    """The source in the target's size; images of another size are fitted as the target's description says."""
    opened = data(source, shape=target.shape, preprocess=target.preprocess, limit=limit, strict=strict)
    if target.bins is None:
        check_classes(opened)
    return opened


def fit(target: Target, source: Source) -> int:
    """Check that the target takes what the source holds, and let a target of unknown size learn it; the number of classes."""
    if target.shape is None:
        target.shape = source.shape
    check_shape(source, target.shape)
    _fit_audio(target, source)
    few = target.prepare(source.read(np.arange(min(4, len(source)))))
    classes = target.check_outputs(few)
    target.check_steady(few)
    target.check_reference(few)
    return classes


def _fit_audio(target: Target, source: Source) -> None:
    """Let a target of unknown rate learn it; anything but a waveform around 0 is refused."""
    if source.rate is None:
        return
    low, high = target.bounds
    if low != -high:
        reach = f"the target's bounds are {low:g} to {high:g}"
        raise BadInput(
            "conflict", "bounds", f"{source.what} is audio, samples on both sides of 0, and {reach}: pass --bounds -1 1."
        )
    target.preprocess = dataclasses.replace(target.preprocess, rate=source.rate)


def check_labels(source: Source, classes: int) -> None:
    """Refuse labels beyond the target's classes."""
    if source.labels is None or int(source.labels.max()) < classes:
        return
    wrong = f"{source.what} has label {int(source.labels.max())}, but the target has {classes} classes"
    single = (
        " A network with one output counts as two classes; for one that predicts a regression value pass --outputs regression."
    )
    raise BadInput(
        "out-of-range",
        "labels",
        f"{wrong}: labels are the numbers 0 to {classes - 1}, 0 for the first class.{single if classes == 2 else ''}",
    )


def aligned(target: Target, source: Source) -> Source:
    """The source with its labels numbered as the target numbers its classes; those of a regression value by the bin it lies in.

    Class folders are numbered in the order of their names, which is rarely the network's: names are matched, or refused.
    """
    if target.bins is not None:
        return _binned(source, target.bins, target.classes)
    if source.labels is None or source.classes is None or target.classes is None or source.classes == target.classes:
        return source
    numbers = {name: number for number, name in enumerate(target.classes)}  # fewer than classes where two share a name
    decimal = all(name.isdecimal() and int(name) < len(target.classes or ()) for name in source.classes)
    if decimal and not set(source.classes) <= set(numbers):
        numbers = {name: int(name) for name in source.classes}
    for name in source.classes:
        if name not in numbers:
            hint = f"{near(name, numbers)} (--classes FILE names them in its order)"
            raise BadInput("unknown-name", "classes", f"{source.spec}: {name!r} is not a class of the target. {hint}")
    renumbered = copy.copy(source)
    renumbered.labels = np.array([numbers[name] for name in source.classes])[source.labels]
    renumbered.classes = target.classes
    return renumbered


def _binned(source: Source, bins: Bins, classes: tuple[str, ...] | None) -> Source:
    quantities = source.labels if source.quantities is None else source.quantities
    if quantities is None:
        return source
    binned = copy.copy(source)
    binned.quantities = np.asarray(quantities, dtype=np.float64)
    binned.labels, binned.classes = bins.of(binned.quantities), classes
    return binned


def remarks(target: Target, source: Source) -> tuple[str, ...]:
    """What a user should know about a source before trusting numbers made from it."""
    sentences = list(source.notes.get("warnings", ()))
    if skipped := [one for one in source.skipped if not one.named]:
        first, count = skipped[0], len(skipped)
        sentences.append(f"{count} file{'s' if count > 1 else ''} skipped (first: {first.file}, {first.reason}).")
    sentences += _rounding(target, source)
    own = source.classes if source.labels is not None and source.names is not None and target.classes is None else None
    if own and own != tuple(map(str, range(len(own)))):
        order = ", ".join(f"{number} = {name}" for number, name in enumerate(own[:4]))
        numbered = f"the target names no classes, so classes are numbered by name ({order}, ...)"
        sentences.append(f"{numbered}: pass --classes if its order differs.")
    return tuple(sentences)


ROUNDED_INPUTS = 64  # inputs on which lower precision is compared with the usual one


def _rounding(target: Target, source: Source) -> list[str]:
    """What running in another precision or layout does to predictions; nothing is said of a target that runs as usual."""
    if target.precision is None or not len(source):
        return []
    x = target.prepare(source.read(np.arange(min(ROUNDED_INPUTS, len(source)))))
    with torch.inference_mode():
        changed = int((target.logits(x).argmax(1) != target.plain().logits(x).argmax(1)).sum())
    return [f"precision {target.precision} changes {changed} of {len(x)} predictions ({changed / len(x):.1%})."]


def each_batch(
    target: Target,
    source: Source,
    step: Callable[[Batch, Trace, Probe], None],
    *,
    wants: Iterable[Want] = (),
    order: np.ndarray | None = None,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> None:
    """Forward the source once with `wants` recorded and call `step` with every batch, its trace and the probe.

    The probe is for traces of further inputs, such as a batch's originals, with the same layers recorded. A batch of which more
    would be recorded than is good for the memory comes in several steps.
    """
    done, total = 0, len(source) if order is None else len(order)
    with Probe(target, *wants) as probe:
        most = recorded_at_once(probe)
        _check_batch(probe, min(batch, total, most))
        with closing(batches(target, source, batch=batch, order=order)) as parts:
            for part in parts:
                for start in range(0, len(part.index), most):
                    some = part[start : start + most] if len(part.index) > most else part
                    step(some, probe(some.x), probe)
                    done += len(some.index)
                if progress is not None:
                    progress(done, total)


RECORDED_BYTES, FEWEST_RECORDED = 1 << 28, 4  # bytes of a batch that are recorded at once; inputs that are


def recorded_at_once(probe: Probe) -> int:
    """How many inputs are recorded at once: of a large network that gives whole maps a batch is too much."""
    sizes = {(name, want.inputs): neurons for name, want, neurons in _recorded(probe)}
    return max(FEWEST_RECORDED, RECORDED_BYTES // (4 * max(1, sum(sizes.values()))))


def _recorded(probe: Probe) -> Iterator[tuple[str, Want, int]]:
    """What is recorded: the layer, what is wanted of it, and how many values that is."""
    for want in probe.wants:
        neuron = "unit" if want.keep == "map" else want.neuron
        for layer in probe.layers(want):
            yield layer.name, want, layer.neurons(neuron, inputs=want.inputs)


def _check_batch(probe: Probe, batch: int) -> None:
    """Refuse to record more of a batch than memory holds."""
    sizes: Counter[str] = Counter()
    for name, _, neurons in _recorded(probe):
        sizes[name] += neurons
    if sizes:
        widest = max(sizes, key=lambda name: sizes[name])
        what = f"recording {len(sizes)} layers of {batch:,} inputs (the widest, {widest!r}, has {sizes[widest]:,} neurons)"
        check_memory(4 * batch * sum(sizes.values()), what, "use --neuron channel or sample, fewer --layers or a smaller --batch")


@public()
def scan(
    target: Target, source: AnyData, consumers: Sequence[Consumer], *, batch: int = BATCH, progress: Progress | None = None
) -> None:
    """Forward the source once, recording what any consumer wants, and update each of them per batch.

    Consumers that can be merged (`fresh`, `merge`) see the source piece by piece, each piece by whichever worker there is.
    """
    from neurotest.pieces import Updates, pass_over

    inputs = read(target, source)
    fit(target, inputs)
    pass_over(target, inputs, Updates(consumers), batch=batch, per=1, progress=progress)  # whoever saves consumers loses a batch


def wanted(consumers: Iterable[Any]) -> tuple[Want, ...]:
    """What all consumers want, each once."""
    return tuple(dict.fromkeys(c.want for c in consumers if c.want is not None))


@public()
def profile(
    target: Target | nn.Module | str,
    train: AnyData,
    *,
    layers: str = "pre_activation",
    neuron: str = "channel",
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Profile:
    """Per-neuron range, mean and spread of training data, for criteria and selectors that compare with what is usual.

    layers: globs over layer names, `pre_activation` or `post_activation`. neuron: `channel` (one value per map) or `unit`.
    """
    target = load(target)
    source = read(target, train)
    fit(target, source)
    ranges = Profile.empty(target, Want(layers=layers, neuron=neuron))  # type: ignore[arg-type]
    scan(target, source, [ranges], batch=batch, progress=progress)
    return ranges


def predictions(target: Target, source: Source) -> NDArray[np.int64]:
    """(n,) the predicted class of each input."""
    with torch.inference_mode():
        return np.concatenate([target.logits(part.x).argmax(1).cpu().numpy() for part in batches(target, source)])


callable_module(__name__)
