"""The bank: training images as they are and changed in known ways, and what the network does on each."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from torch import Tensor

from neurotest import rng
from neurotest.audio import is_audio
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import atomic_write, cache_dir
from neurotest.levels import levels_of
from neurotest.mutate.audio import AudioMutations
from neurotest.mutate.base import Mutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.shifts import CorruptionMutations, ViewMutations
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.scan import Progress, batches, recorded_at_once
from neurotest.select.adaptive.features import BLOCK, SAMPLE, WANT, Basis, Facts, Gather
from neurotest.target import Probe, Target
from neurotest.target.speed import channels_last, laid_channels_last

MOST_IMAGES = 5000  # training images
FORMAT = 2  # of a bank in the cache
TRIED = 2  # inputs on which a faster layout of the weights is tried
TOGETHER, PIXELS = 10, 1 << 23  # blocks of images that are changed at a time, and values they may hold
PLAIN = "plain"
COPIES: tuple[Mutations | None, ...] = (None, NssMutations(), NssMutations(), ViewMutations(), CorruptionMutations())
HEARD: tuple[Mutations | None, ...] = (None, *(AudioMutations(decay=decay) for decay in (0.15, 0.3, 0.5, 0.8)))


def copies_of(source: Source) -> tuple[Mutations | None, ...] | None:
    """How its inputs are changed; None for what is neither image nor audio."""
    if is_audio(source.dtype, source.shape):
        return HEARD
    return COPIES if len(source.shape) == 3 and source.shape[0] in (1, 3) else None


@dataclass(frozen=True)
class Bank:
    """One row per copy of an image: what the network does, the true class, how it was changed, and of which image it is."""

    facts: Facts
    labels: np.ndarray  # (n,) int64
    operators: np.ndarray  # (n,) numbers in `names`
    images: np.ndarray  # (n,)
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def without(self, names: Sequence[str]) -> Bank:
        """As if these changes had not been simulated."""
        left = tuple(name for name in self.names if name not in names)
        numbers = np.array([left.index(name) if name in left else -1 for name in self.names])[self.operators]
        kept = numbers >= 0
        return Bank(self.facts.only(kept), self.labels[kept], numbers[kept], self.images[kept], left)


def _sample_of(train: Source, seed: int) -> Source:
    """At most MOST labelled images, drawn at random."""
    if len(train) <= MOST_IMAGES:
        return train
    return train.take(np.sort(rng.stream("select.bank.images", seed).permutation(len(train))[:MOST_IMAGES]))


def _names_of(copies: Sequence[Mutations | None] = COPIES) -> tuple[str, ...]:
    names = [PLAIN] if None in copies else []
    return tuple(dict.fromkeys([*names, *(name for one in copies if one is not None for name in one.names)]))


class _Copies:
    """The images of a source, changed; each draw depends on the seed, the number of the copy and the image's place alone."""

    def __init__(self, target: Target, source: Source, seed: int, copies: Sequence[Mutations | None]) -> None:
        self.target, self.source, self.copies, self.names = target, source, copies, _names_of(copies)
        self.draws = [
            None if one is None else one.draw(rng.stream("select.bank", seed, number), len(source))
            for number, one in enumerate(copies)
        ]

    def operators(self, number: int) -> np.ndarray:
        draws = self.draws[number]
        if draws is None:
            return np.zeros(len(self.source), dtype=np.int64)
        return np.asarray(np.array([self.names.index(name) for name in draws.names])[draws.kind])

    def each(self, number: int, order: np.ndarray) -> Iterator[Tensor]:
        """In blocks, changed many at a time: an operator costs as much for ten images as for one."""
        mutations, draws = self.copies[number], self.draws[number]
        values = int(np.prod(self.source.shape))
        blocks = PIXELS // (BLOCK * values)
        size = min(TOGETHER, blocks) * BLOCK if blocks else max(1, PIXELS // values)  # of photographs less than a block
        for part in batches(self.target, self.source, order=order, batch=size):
            x = part.x
            if mutations is not None and draws is not None:
                unit = to_unit(x, self.target.bounds)
                changed = mutations.apply(unit, draws[part.index], levels=levels_of(self.source.dtype))
                x = from_unit(changed, self.target.bounds)
            yield from x.split(BLOCK)


def _build(
    target: Target,
    source: Source,
    labels: np.ndarray,
    basis: Basis | None = None,
    *,
    seed: int = 0,
    copies: Sequence[Mutations | None] = COPIES,
    progress: Progress | None = None,
) -> tuple[Bank, Basis]:
    """Forward every copy of every image once. Without a basis, one is fitted on SAMPLE rows, as many of each copy."""
    changed, n = _Copies(target, source, seed, copies), len(source)
    total, each = n * len(copies), -(-SAMPLE // len(copies))
    shuffled = [rng.stream("select.bank.sample", seed, number).permutation(n) for number in range(len(copies))]
    gather = Gather(total, basis)
    with channels_last(target, next(changed.each(0, np.arange(min(n, TRIED))))) as fits, Probe(target, WANT) as probe:
        for part in (slice(None, each), slice(each, None)):
            for number, order in enumerate(np.sort(images[part]) for images in shuffled):
                start = 0
                for x in changed.each(number, order):
                    for some in x.split(recorded_at_once(probe)):
                        rows = number * n + order[start : start + len(some)]
                        gather.update(rows, probe(laid_channels_last(some) if fits else some))
                        start += len(some)
                    if progress is not None:
                        progress(gather.seen, total)
    assert gather.basis is not None
    operators = np.concatenate([changed.operators(number) for number in range(len(copies))])
    rows = np.tile(np.arange(n), len(copies))
    return Bank(gather.value(), labels[rows], operators, rows, changed.names), gather.basis


# -- the cache: a bank depends on the target, on the training images and their labels, and on nothing else


def of_training(
    target: Target, train: Source, *, copies: Sequence[Mutations | None] = COPIES, progress: Progress | None = None
) -> tuple[Bank, Basis]:
    """The bank of some training data in a basis of its own, from the cache or made and put there."""
    images = _sample_of(train, 0)
    assert images.labels is not None
    place = cache_dir() / "banks" / f"{_key(target, images, copies)}.npz"
    if (kept := _read(place, _names_of(copies))) is not None:
        return kept
    bank, basis = _build(target, images, images.labels, copies=copies, progress=progress)
    with suppress(BadInput), atomic_write(place) as part, open(part, "wb") as file:  # without a cache it costs time only
        np.savez(file, allow_pickle=False, **_arrays(bank, basis))
    return bank, basis


def _key(target: Target, images: Source, copies: Sequence[Mutations | None]) -> str:
    about = (FORMAT, target.fingerprint, images.digest(), tuple(map(repr, copies)))
    return blake2b(repr(about).encode(), digest_size=16).hexdigest()


def _arrays(bank: Bank, basis: Basis) -> dict[str, np.ndarray]:
    facts = {f"facts.{name}": value for name, value in bank.facts.arrays().items() if name != "embedding"}
    rows = {"labels": bank.labels, "operators": bank.operators, "images": bank.images}
    return {**facts, **rows, **{f"basis.{name}": value for name, value in basis.state().items()}}


def _read(place: Path, names: tuple[str, ...]) -> tuple[Bank, Basis] | None:
    """None where there is none, or a damaged one: it is made again."""
    try:
        with np.load(place, allow_pickle=False) as file:
            arrays = dict(file)
        basis = Basis.read({name[6:]: value for name, value in arrays.items() if name.startswith("basis.")})
        facts = Facts(
            **{name[6:]: value for name, value in arrays.items() if name.startswith("facts.")}, embedding=basis.embedding
        )
        bank = Bank(facts, arrays["labels"], arrays["operators"], arrays["images"], names)
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        return None
    rows = {len(a) for a in (facts.features, facts.logits, bank.labels, bank.operators, bank.images)}
    return (bank, basis) if len(rows) == 1 and bank.operators.max(initial=0) < len(names) else None


def of_pool(
    target: Target, pool: Source, facts: Facts, basis: Basis, *, copies: Sequence[Mutations | None] = COPIES,
    progress: Progress | None = None,
) -> Bank:  # fmt: skip
    """Without training data: the half of the pool of which the network is surest, its predictions taken for the truth."""
    outputs = facts.outputs
    surest = np.argsort(outputs.gini_odds().numpy(), kind="stable")[: len(facts) // 2]
    if len(surest) > MOST_IMAGES:
        surest = rng.stream("select.bank.images", 0).permutation(surest)[:MOST_IMAGES]
    surest = np.sort(surest)
    return _build(target, pool.take(surest), outputs.predicted.numpy()[surest], basis, copies=copies, progress=progress)[0]
