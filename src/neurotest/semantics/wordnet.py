"""WordNet's nouns from its own files, and Wu and Palmer's similarity on them. Nothing is downloaded or bundled."""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neurotest.errors import BadInput
from neurotest.files import cache_dir
from neurotest.semantics.encoders import tokens

FILES = ("index.noun", "data.noun")
MOST = 1 << 26  # bytes of a file


def places() -> list[Path]:
    folder = os.environ.get("NEUROTEST_WORDNET")
    return [Path(folder)] if folder else [Path("/usr/share/wordnet"), cache_dir() / "wordnet"]


@dataclass(frozen=True, eq=False)
class WordNet:
    """senses: word -> its first synsets. parents: synset -> the more general ones."""

    senses: dict[str, tuple[int, ...]]
    parents: dict[int, tuple[int, ...]]

    @functools.cache  # noqa: B019 - one object per process
    def ancestors(self, synset: int) -> dict[int, int]:
        """Every more general synset with the least number of steps to it, itself included."""
        steps_to, front, steps = {synset: 0}, [synset], 0
        while front:
            steps += 1
            front = [p for s in front for p in self.parents.get(s, ()) if p not in steps_to]
            for p in front:
                steps_to.setdefault(p, steps)
        return steps_to

    @functools.cache  # noqa: B019
    def depth(self, synset: int) -> int:
        """Synsets on the longest way up, itself included: the root has 1."""
        return 1 + max((self.depth(p) for p in self.parents.get(synset, ())), default=0)

    def senses_of(self, word: str) -> tuple[int, ...]:
        """A word's senses; a plural is looked up as its singular."""
        word = word.lower()
        for form in (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y"):
            if form in self.senses:
                return self.senses[form]
        return ()

    @functools.cache  # noqa: B019
    def similarity(self, one: str, other: str) -> float:
        """Wu and Palmer: twice the depth of the deepest common synset over the sum of both depths; unknown words are 1 or 0."""
        if one == other:
            return 1.0
        best = 0.0
        for a, b in itertools.product(self.senses_of(one), self.senses_of(other)):
            above, below = self.ancestors(a), self.ancestors(b)
            if common := [synset for synset in below if synset in above]:
                shared = max(common, key=self.depth)
                top = self.depth(shared)
                best = max(best, 2 * top / (2 * top + above[shared] + below[shared]))
        return best

    def pair(self, one: str, other: str) -> float:
        """Of two texts: the mean over words of the best similarity, both ways."""
        a, b = set(tokens(one)), set(tokens(other))
        if not a or not b:
            return float(a == b)
        best = np.array([[self.similarity(*sorted((w, v))) for v in b] for w in a])
        return float(best.max(1).mean() + best.max(0).mean()) / 2


@functools.cache
def _read(folder: Path, senses: int) -> WordNet:
    for name in FILES:
        if (folder / name).stat().st_size > MOST:
            raise BadInput("too-large", "wordnet", f"{folder / name} is larger than {MOST >> 20} MB: this is no file of WordNet.")
    try:
        words = {}
        for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
            if line and line[0] != " ":
                parts = line.split()
                count = int(parts[2])
                words[parts[0].replace("_", " ")] = tuple(int(p) for p in parts[-count:][:senses])
        parents = {}
        for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
            if line and line[0] != " ":
                parts = line.partition("|")[0].split()
                start = 4 + 2 * int(parts[3], 16)  # after the words of the synset comes the number of its pointers
                pointers = [parts[i : i + 2] for i in range(start + 1, start + 1 + 4 * int(parts[start]), 4)]
                parents[int(parts[0])] = tuple(int(to) for kind, to in pointers if kind in ("@", "@i"))
        return WordNet(words, parents)
    except (OSError, ValueError, IndexError) as error:
        raise BadInput("unreadable", "wordnet", f"cannot read WordNet in {folder}: {error}.") from error


def read(senses: int = 3) -> WordNet:
    """WordNet from wherever its files are."""
    folder = next((place for place in places() if all((place / name).is_file() for name in FILES)), None)
    if folder is None:
        looked = ", ".join(str(p) for p in places())
        raise BadInput(
            "not-installed",
            "wordnet",
            f"encoder=wordnet needs WordNet's files {' and '.join(FILES)} (Debian package wordnet-base), not found in {looked}: "
            "install them, name their folder in NEUROTEST_WORDNET, or choose encoder=lsa.",
        )
    return _read(folder, senses)
