"""What is measured: each work gives pairs (ours, bare) by setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from neurotest import zoo
from neurotest.errors import BadInput, near
from neurotest.scan import Progress
from neurotest_lab.bench import attack, clever, coverage, fuzz, imagenet, nsgen, passes, selection, swarm
from neurotest_lab.bench.ratio import Pair, Ratio, ratio


class Work(NamedTuple):
    """The pairs of one subject, and the subjects that are measured unless others are named (none: all that are embedded)."""

    pairs: Callable[[str], Iterator[tuple[str, Pair]]]
    subjects: tuple[str, ...] = ()


WORKS = {
    "probe": Work(passes.probe_pairs),
    "nss": Work(passes.nss_pairs),
    "coverage": Work(coverage.coverage_pairs, coverage.SUBJECTS),
    "select": Work(selection.select_pairs, selection.SUBJECTS),
    "fuzz": Work(fuzz.fuzz_pairs, fuzz.SUBJECTS),
    "attack": Work(attack.attack_pairs, attack.SUBJECTS),
    "clever": Work(clever.clever_pairs, clever.SUBJECTS),
    "nsgen": Work(nsgen.nsgen_pairs, nsgen.SUBJECTS),
    "swarm": Work(swarm.swarm_pairs, swarm.SUBJECTS),
    "imagenet": Work(imagenet.imagenet_pairs, imagenet.SUBJECTS),
}


def run(
    work: str, subjects: list[str] | None, *, repeats: int, progress: Progress | None = None, only: Sequence[str] = ()
) -> dict[str, Ratio]:
    """Ratios by WORK/SUBJECT/SETTING; of some settings only, where they are named."""
    if work not in WORKS:
        raise BadInput("unknown-name", "work", f"there is no benchmark {work!r}. {near(work, WORKS)}")
    names = subjects or WORKS[work].subjects or tuple(s.name for s in zoo.catalogue() if s.embedded)
    ratios: dict[str, Ratio] = {}
    for done, name in enumerate(names):
        for setting, (ours, bare) in WORKS[work].pairs(name):
            if only and setting not in only:
                continue
            ratios[f"{work}/{name}/{setting}"] = ratio(ours, bare, repeats=repeats)
        if progress is not None:
            progress(done + 1, len(names))
    return ratios
