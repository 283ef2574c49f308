"""The loop: mutate many seeds at once, run them in one pass, and decide as if they had come one after the other.

Within a turn the first mutant that gains is accepted, in the order they were drawn; a mutant is judged by a guide that has
seen everything accepted before it. So the size of a chunk changes speed, not results. Parents are chosen from the corpus as it
was when the batch began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Corpus, Entry
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.lanes import Lane
from neurotest.generate.fuzz.memory import give_back
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.mutate import chain as chains
from neurotest.mutate.space import Draws
from neurotest.mutate.validity import DIFFERENT
from neurotest.oracles import Court, predicted
from neurotest.target import Probe, Target, Trace

REMEMBERED = 64  # finished turns that say how large a chunk is worth while
BARREN = 16  # turns without a single valid mutant before we give up


@dataclass(frozen=True, eq=False)
class _Proposed:
    """The valid mutants of a batch; `rows[lane]` are places in it, in the order they were drawn."""

    x: NDArray[np.generic]  # (m, *shape) as it would be saved
    apart: NDArray[np.float64]  # (m, 3) how far from the seed
    draws: Draws
    rows: list[list[int]]
    owner: NDArray[np.int64]  # (m,) lane
    contents: NDArray[np.str_]


class Fuzzer:
    """A campaign in memory: `step` does one batch and gives its outputs. `tally` counts, `state` and `restore` save it all."""

    def __init__(self, target: Target, seeds: Seeds, guide: GuideState, court: Court, settings: Settings, budget: Budget) -> None:
        self.target, self.seeds, self.guide, self.court = target, seeds, guide, court
        self.settings, self.budget = settings, budget
        settings.mutations.check(tuple(seeds.x.shape[1:]))
        self.corpus = Corpus(seeds, settings)
        self.tally = Tally()
        self.opened = 0  # iterations that were begun
        self.lanes: list[Lane] = []
        self.lengths: deque[int] = deque(maxlen=REMEMBERED)
        self.seen: set[int] = {int(content, 16) for content in seeds.contents.tolist()}
        self._unchecked = np.array(
            [
                (f.once and not settings.validity.check_once) or (f.exempt and settings.validity.style_exempt)
                for f in settings.mutations.families
            ]
        )
        self._probe = Probe(target, *([guide.want] if guide.want is not None else []))

    def __enter__(self) -> Fuzzer:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(None, None, None)

    def run(self) -> Iterator[list[Mutant]]:
        """Batches until the budget is spent."""
        while self.spent() is None:
            yield self.step()

    def spent(self) -> str | None:
        """What ends the campaign now, if anything does."""
        return self.budget.spent(self.tally.counts())

    # -- one batch

    def step(self) -> list[Mutant]:
        """One batch: at most one forward pass over `batch` mutants, and what came out of it."""
        chunk = self._chunk()
        self._open(max(1, self.settings.batch // chunk))
        tally = self.tally
        tally.batches += 1
        found: list[Mutant] = []
        if self.lanes:
            proposed = self._propose(chunk)
            if len(proposed.x):
                found = self._judge(proposed)
        self._close()
        give_back(tally.batches)
        if not tally.tested and tally.iterations >= BARREN:
            raise BadInput(
                f"no valid mutant in {tally.drawn:,} draws: loosen validity (--validity valid:alpha=0.4,beta=0.8) or choose "
                "other --mutations."
            )
        return found

    def _chunk(self) -> int:
        """Mutants per turn and batch: about as many as turns took lately, so that little is run in vain."""
        if not self.lengths:
            return min(4, self.settings.chunk)
        return int(np.clip(np.ceil(np.mean(self.lengths)), 1, self.settings.chunk))

    def _open(self, most: int) -> None:
        limit = self.budget.iterations
        new = max(0, most - len(self.lanes))
        if limit is not None:
            new = min(new, limit - self.opened)
        if not new:
            return
        numbers = range(self.opened, self.opened + new)
        streams = [rng.stream("fuzz.turn", self.settings.seed, i) for i in numbers]
        entries = self.corpus.pick(np.array([stream.random() for stream in streams]))  # the first draw of a turn: whose it is
        for iteration, entry, stream in zip(numbers, entries, streams, strict=True):
            self.lanes.append(Lane(iteration, entry, self.corpus.energy(entry), stream))
        self.opened += new

    def _propose(self, chunk: int) -> _Proposed:
        """Draw, mutate and check a chunk for every turn."""
        lanes, settings, seeds = self.lanes, self.settings, self.seeds
        most, chunk = chunk, min(4 * chunk, int(np.ceil(chunk * (self.tally.drawn + 1) / (self.tally.valid + 1))))
        owner = np.repeat(np.arange(len(lanes)), chunk)
        uniforms = np.concatenate([lane.look(chunk) for lane in lanes])
        used = np.repeat([lane.entry.used for lane in lanes], chunk)
        draws = settings.mutations.draw(uniforms, used)
        device = self.target.device
        parents, references, roots = (
            seeds.unit(np.stack(images), device).repeat_interleave(chunk, 0)
            for images in (
                [lane.entry.x for lane in lanes],
                [lane.entry.reference for lane in lanes],
                [seeds.x[lane.entry.root] for lane in lanes],
            )
        )
        with torch.inference_mode():
            made = settings.mutations.apply(parents, draws, root=roots, eight_bit=seeds.eight_bit)
            changed = ((made - parents).abs() > DIFFERENT).flatten(1).any(1)
            unchecked = torch.from_numpy(self._unchecked[draws.kind]).to(device)
            valid = (changed & (unchecked | settings.validity.check(made, references))).cpu().numpy()
        rows: list[list[int]] = []
        places: list[int] = []
        for number, lane in enumerate(lanes):
            start = number * chunk
            chosen = lane.take(valid[start : start + chunk], most)
            rows.append(list(range(len(places), len(places) + len(chosen))))
            places += [start + row for row in chosen]
        self.tally.drawn += len(valid)
        self.tally.valid += int(np.count_nonzero(valid))
        index = np.array(places, dtype=np.int64)
        unit = made[torch.from_numpy(index).to(device)]
        x = seeds.stored(unit)
        apart = distances(unit, roots[torch.from_numpy(index).to(device)])
        return _Proposed(x, apart, draws[index], rows, owner[index], content_ids(x))

    def _judge(self, proposed: _Proposed) -> list[Mutant]:
        """Run the mutants, let the oracles condemn and the guide choose."""
        tally, roots = self.tally, np.array([lane.entry.root for lane in self.lanes])[proposed.owner]
        x = self.target.prepare(proposed.x)
        trace = self._probe(x)
        with torch.inference_mode():
            verdicts = self.court(x, trace.logits, self.seeds.roots[roots])
        tally.forwards += len(x) * (1 + self.court.passes)
        verdicts, unstable = self._again(proposed, verdicts, roots)
        classes = predicted(trace.logits)
        # the guide sees neither faults of no use to it (NaN) nor mutants that were put out before
        fresh = np.array([int(content, 16) not in self.seen for content in proposed.contents.tolist()])
        turn = _Turn(self, proposed, trace, verdicts, classes, fresh)
        found: list[Mutant] = []
        most_outputs, most_faults = self.budget.outputs or np.inf, self.budget.faults or np.inf
        for number in range(len(self.lanes)):
            found += turn.decide(number)
            if tally.outputs >= most_outputs or tally.faults >= most_faults:
                break
        turn.admit()
        tally.unstable += unstable
        return found

    def _again(self, proposed: _Proposed, verdicts: NDArray[np.int64], roots: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Condemned mutants are run once more from what would be saved, in a batch of their own: a fault must stay one."""
        suspects = np.flatnonzero(verdicts >= 0)
        if not len(suspects):
            return verdicts, 0
        x = self.target.prepare(np.ascontiguousarray(proposed.x[suspects]))
        with torch.inference_mode():
            again = self.court(x, self.target.logits(x), self.seeds.roots[roots[suspects]])
        self.tally.forwards += len(x) * (1 + self.court.passes)
        stable = again == verdicts[suspects]
        verdicts = verdicts.copy()
        verdicts[suspects[~stable]] = -1
        return verdicts, int(np.count_nonzero(~stable))

    def _close(self) -> None:
        for lane in [lane for lane in self.lanes if lane.done]:
            self.tally.iterations += 1
            self.lengths.append(max(1, lane.tested))
        self.lanes = [lane for lane in self.lanes if not lane.done]

    # -- saving it: entries are saved by their owner, because most of them do not change from one time to the next

    def plain(self) -> dict[str, Any]:
        """Everything but images and the guide's arrays."""
        return {
            "tally": self.tally.plain(),
            "opened": self.opened,
            "lengths": list(self.lengths),
            "lanes": [lane.plain() for lane in self.lanes],
            "next": self.corpus.next,
            "uses": [[entry.number, entry.uses] for entry in self.corpus.entries],
        }

    def restore(self, plain: dict[str, Any], entries: dict[int, Entry], seen: set[int]) -> None:
        """Take over what `plain` gave, with the entries it names and the contents of all outputs up to then."""
        self.tally = Tally.read(plain["tally"])
        self.opened, self.corpus.next = int(plain["opened"]), int(plain["next"])
        self.lengths = deque((int(n) for n in plain["lengths"]), maxlen=REMEMBERED)
        self.corpus.entries = [entries[int(number)] for number, _ in plain["uses"]]
        for entry, (_, uses) in zip(self.corpus.entries, plain["uses"], strict=True):
            entry.uses = int(uses)
            entry.potential = self.corpus.potential(entry.x, entry.reference)
        self.seen |= seen
        self.lanes = []
        for lane in plain["lanes"]:
            stream = rng.stream("fuzz.turn", self.settings.seed, int(lane["iteration"]))
            stream.random()  # whose turn it is
            self.lanes.append(Lane(random=stream, **{**lane, "entry": entries[int(lane["entry"])]}))


@dataclass(eq=False)
class _Turn:
    """One batch's decisions, turn by turn."""

    fuzzer: Fuzzer
    proposed: _Proposed
    trace: Trace
    verdicts: NDArray[np.int64]
    classes: NDArray[np.int64]
    fresh: NDArray[np.bool_]

    def __post_init__(self) -> None:
        self.gains = self.fuzzer.guide.gain(self.trace)
        self.changed = False  # whether the guide has kept something of this batch
        self.here: set[int] = set()
        self.admitted: list[tuple[Lane, int, Mutant]] = []

    def decide(self, number: int) -> list[Mutant]:
        """What comes out of one turn's mutants."""
        fuzzer, lane, rows = self.fuzzer, self.fuzzer.lanes[number], self.proposed.rows[number]
        if not rows:
            return []
        if not lane.tested:
            self._control(lane, rows[0])
        accepted = self._accept(lane, rows)
        stop = rows.index(accepted[-1]) + 1 if lane.accepted else len(rows)
        lane.tested += stop
        self._count(rows[:stop])
        found = []
        for place, row in enumerate(rows):
            late = place >= stop  # run, but after the turn had ended
            if row in accepted or (self.verdicts[row] >= 0 and fuzzer.settings.every_fault and self._new(row)):
                found.append(self._put_out(lane, row, row in accepted and not late))
        return found

    def _count(self, rows: list[int]) -> None:
        tally, names = self.fuzzer.tally, self.proposed.draws.names
        tally.tested += len(rows)
        tally.condemned += int(np.count_nonzero(self.verdicts[rows] >= 0))
        tally.tried.update(names[k] for k in self.proposed.draws.kind[rows])

    def _new(self, row: int) -> bool:
        return bool(self.fresh[row]) and int(self.proposed.contents[row], 16) not in self.here

    def _accept(self, lane: Lane, rows: list[int]) -> list[int]:
        """The first row that gains (or all that do), each judged after what was kept before it."""
        chosen: list[int] = []
        start = 0
        while start < len(rows):
            row = self._first(rows[start:])
            if row is None:
                break
            self.changed = True
            chosen.append(row)
            self.here.add(int(self.proposed.contents[row], 16))
            if self.fuzzer.settings.priority != "deephunter":
                lane.entry.uses += 1
            if self.fuzzer.settings.accept == "first":
                lane.accepted = True
                break
            start = rows.index(row) + 1
        return chosen

    def _first(self, rows: list[int]) -> int | None:
        """The first of these that gains now; the guide keeps it."""
        guide = self.fuzzer.guide
        open_ = [row for row in rows if self.classes[row] >= 0 and self._new(row)]
        if not self.changed or guide.shrinking:  # what brought nothing before brings nothing now
            open_ = [row for row in open_ if self.gains[row] > 0]
        if self.changed and open_ and not guide.shrinking:
            self.gains[open_] = guide.gain(guide.some(self.trace, open_))
            open_ = [row for row in open_ if self.gains[row] > 0]
        for row in open_:
            one = guide.some(self.trace, [row])
            if self.changed and guide.shrinking:
                self.gains[row] = guide.gain(one)[0]
                if self.gains[row] <= 0:
                    continue
            guide.keep(one)
            return row
        return None

    def _control(self, lane: Lane, row: int) -> None:
        """The first mutant of a turn is what a guide that takes anything would have kept."""
        tally = self.fuzzer.tally
        tally.control_outputs += 1
        if self.verdicts[row] >= 0:
            tally.control_faults += 1
            operator = self.proposed.draws.names[self.proposed.draws.kind[row]]
            tally.control_families[(self._expected(lane), int(self.classes[row]), operator)] += 1

    def _expected(self, lane: Lane) -> int:
        roots, root = self.fuzzer.seeds.roots, lane.entry.root
        return int(roots.labels[root] if roots.labels[root] >= 0 else roots.predicted[root])

    def _put_out(self, lane: Lane, row: int, accepted: bool) -> Mutant:
        fuzzer, proposed = self.fuzzer, self.proposed
        chain = (*lane.entry.chain, chains.step(fuzzer.settings.mutations, proposed.draws, row))
        verdict = int(self.verdicts[row])
        apart = proposed.apart[row]
        mutant = Mutant(
            number=fuzzer.tally.outputs, batch=fuzzer.tally.batches, iteration=lane.iteration, root=lane.entry.root,
            content=str(proposed.contents[row]), x=proposed.x[row].copy(),  # a view would keep the whole batch alive
            chain=chain,
            label=int(fuzzer.seeds.roots.labels[lane.entry.root]), expected=self._expected(lane),
            predicted=int(self.classes[row]), oracle=fuzzer.court.names[verdict] if verdict >= 0 else None,
            accepted=accepted, gain=float(self.gains[row]), distance=(float(apart[0]), float(apart[1]), float(apart[2])),
        )  # fmt: skip
        self.here.add(int(mutant.content, 16))
        fuzzer.seen.add(int(mutant.content, 16))
        fuzzer.tally.add(mutant)
        if accepted and len(chain) < fuzzer.settings.max_depth and (not mutant.fault or fuzzer.settings.reuse_failures):
            self.admitted.append((lane, row, mutant))
        return mutant

    def admit(self) -> None:
        """New seeds; after a mutation that is allowed once the reference image has gone through it, too."""
        fuzzer, draws = self.fuzzer, self.proposed.draws
        space, seeds = fuzzer.settings.mutations, fuzzer.seeds
        once = [bool(space.once[draws.kind[row]]) for _, row, _ in self.admitted]
        moved: Iterator[NDArray[np.generic]] = iter(())
        if any(once):
            rows = np.array([row for (_, row, _), first in zip(self.admitted, once, strict=True) if first])
            entries = [lane.entry for (lane, _, _), first in zip(self.admitted, once, strict=True) if first]
            before, roots = (
                seeds.unit(np.stack(images)) for images in ([e.reference for e in entries], [seeds.x[e.root] for e in entries])
            )
            with torch.inference_mode():
                moved = iter(seeds.stored(space.apply(before, draws[rows], root=roots, eight_bit=seeds.eight_bit)))
        for (lane, _, mutant), first in zip(self.admitted, once, strict=True):
            reference = next(moved).copy() if first else lane.entry.reference
            fuzzer.corpus.add(mutant.root, mutant.x, reference, lane.entry.used or first, mutant.chain)
        fuzzer.corpus.trim({lane.entry.number for lane in fuzzer.lanes})


def distances(x: Tensor, roots: Tensor) -> NDArray[np.float64]:
    """(n, 3): L0 as a share of the values, L2 and Linf, in [0, 1]."""
    apart = (x - roots).abs().flatten(1)
    found = torch.stack([(apart > DIFFERENT).float().mean(1), apart.square().sum(1).sqrt(), apart.amax(1)], 1)
    return np.asarray(found.double().cpu().numpy())
