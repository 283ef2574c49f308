"""A describer in the manner of MILAN, trained here: small, experimental, without human annotations."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest import checks, rng
from neurotest.data.spec import data as read_data
from neurotest.errors import BadInput
from neurotest.files import atomic_write, cache_dir
from neurotest.reading import read_bytes
from neurotest.registry import register
from neurotest.semantics.describe.corpus import (
    SHAPE_CORPORA,
    Annotator,
    Pairs,
    annotated_pairs,
    annotator,
    attribute_pairs,
    class_pairs,
)
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.descriptions import LARGEST, NeuronDescription
from neurotest.semantics.exemplars import Exemplars, K, regions

START, STOP, ODD = 0, 1, 2  # numbers of the tokens that are no words
SPECIAL = ("<start>", "<stop>", "<odd>")
LENGTH = 15
FORMAT = 2
BATCH = 64
STORED = ("teller", "language")  # what the two decoders are called in files


def _tokens(text: str) -> list[str]:
    """Words, numbers with their letters, and commas.

    >>> _tokens("Ankle boot, T-shirt")
    ['ankle', 'boot', ',', 't-shirt']
    """
    return re.findall(r"[\w-]+|[,;]", text.lower())


def _joined(words: Iterable[str]) -> str:
    """The text that tokens came from, in lower case."""
    return re.sub(r"\s+([,;])", r"\1", " ".join(words))


@dataclass(frozen=True)
class _Vocabulary:
    """Words by number; the first three are start, stop and unknown words."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Vocabulary:
        return cls((*SPECIAL, *sorted({word for text in texts for word in _tokens(text)})))

    def encode(self, texts: Sequence[str], length: int = LENGTH) -> Tensor:
        """(n, length + 1) numbers, stop at the end and after it."""
        numbers = {word: number for number, word in enumerate(self.words)}
        out = torch.full((len(texts), length + 1), STOP)
        for row, text in enumerate(texts):
            coded = [numbers.get(word, ODD) for word in _tokens(text)][:length]
            out[row, : len(coded)] = torch.tensor(coded, dtype=torch.long)
        return out

    def decode(self, numbers: Sequence[int]) -> str:
        end = list(numbers).index(STOP) if STOP in numbers else len(numbers)
        return _joined(self.words[n] for n in numbers[:end])


class _Decoder(nn.Module):
    """p(description | region): at every word attention over the k annotation vectors, gated, beside the last word's embedding."""

    def __init__(self, words: int, features: int, *, embedding: int = 128, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, embedding)
        self.keys = nn.Linear(features, hidden)
        self.query = nn.Linear(hidden, hidden)
        self.weigh = nn.Linear(hidden, 1)
        self.gate = nn.Linear(hidden, features)
        self.begin = nn.Linear(features, 2 * hidden)
        self.cell = nn.LSTMCell(embedding + features, hidden)
        self.out = nn.Linear(hidden, words)
        self.drop = nn.Dropout(dropout)

    def start(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = self.begin(vectors.mean(dim=1)).chunk(2, dim=1)
        return torch.tanh(hidden), torch.tanh(cell)

    def step(
        self, word: Tensor, state: tuple[Tensor, Tensor], vectors: Tensor, keys: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Log-probabilities of the next word, (n, words), and the new state."""
        hidden, cell = state
        energy = self.weigh(torch.tanh(keys + self.query(hidden).unsqueeze(1))).squeeze(2)  # (n, k)
        looked = (energy.softmax(dim=1).unsqueeze(2) * vectors).sum(dim=1) * torch.sigmoid(self.gate(hidden))
        state = self.cell(torch.cat([self.embed(word), looked], dim=1), (hidden, cell))
        return functional.log_softmax(self.out(self.drop(state[0])), dim=1), state

    def forward(self, vectors: Tensor, words: Tensor) -> Tensor:
        """Log-probability of every word of the descriptions, (n, length), given annotation vectors (n, k, features)."""
        keys, state = self.keys(vectors), self.start(vectors)
        word = torch.full((len(words),), START)
        parts = []
        for place in range(words.shape[1]):
            scores, state = self.step(word, state, vectors, keys)
            word = words[:, place]
            parts.append(scores.gather(1, word.unsqueeze(1)))
        return torch.cat(parts, dim=1)


class _LanguageModel(nn.Module):
    """p(description), whatever the neuron: a two-layer LSTM."""

    def __init__(self, words: int, *, embedding: int = 128, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True, dropout=dropout)
        self.out = nn.Linear(hidden, words)

    def forward(self, words: Tensor) -> Tensor:
        """Log-probability of every word of the descriptions: (n, length)."""
        before = functional.pad(words[:, :-1], (1, 0), value=START)
        scores = functional.log_softmax(self.out(self.lstm(self.embed(before))[0]), dim=2)
        return scores.gather(2, words.unsqueeze(2)).squeeze(2)


def _until_stop(words: Tensor) -> Tensor:
    """Which places of descriptions count: up to and with the first stop."""
    stops = (words == STOP).long()
    return stops.cumsum(dim=1) - stops == 0


@torch.no_grad()
def _beam(decoder: _Decoder, vectors: Tensor, *, width: int = 50, length: int = LENGTH) -> tuple[Tensor, Tensor]:
    """The `width` likeliest descriptions found by beam search: (n, width, length + 1) words and (n, width) log-probabilities."""
    n, k, features = vectors.shape
    words = decoder.out.out_features
    scores, state = decoder.step(torch.full((n,), START), decoder.start(vectors), vectors, keys := decoder.keys(vectors))
    width = min(width, words)
    total, last = scores.topk(width, dim=1)  # (n, width)
    seen = last.unsqueeze(2)
    spread = vectors.unsqueeze(1).expand(n, width, k, features).reshape(n * width, k, features)
    wide = keys.unsqueeze(1).expand(n, width, *keys.shape[1:]).reshape(n * width, *keys.shape[1:])
    state = tuple(part.repeat_interleave(width, dim=0) for part in state)  # type: ignore[assignment]
    stay = torch.full((words,), -torch.inf)
    stay[STOP] = 0.0  # a finished description goes on as it is
    for _ in range(length):
        if bool((last == STOP).all()):
            break
        scores, new = decoder.step(last.flatten(), state, spread, wide)
        scores = torch.where((last == STOP).flatten().unsqueeze(1), stay, scores)
        every = (total.unsqueeze(2) + scores.view(n, width, words)).flatten(1)
        total, chosen = every.topk(width, dim=1)
        origin, last = chosen // words, chosen % words
        seen = torch.cat([seen.gather(1, origin.unsqueeze(2).expand(-1, -1, seen.shape[2])), last.unsqueeze(2)], dim=2)
        rows = (torch.arange(n).unsqueeze(1) * width + origin).flatten()
        state = tuple(part[rows] for part in new)  # type: ignore[assignment]
    return functional.pad(seen, (0, length + 1 - seen.shape[2]), value=STOP), total


@torch.no_grad()
def _best_descriptions(
    decoder: _Decoder, language: _LanguageModel, vocabulary: _Vocabulary, vectors: Tensor, *, width: int, temperature: float
) -> list[tuple[str, float]]:
    """Each neuron's description and its mean probability per word.

    Of the beam the one that says most about this neuron: largest log p(d | R) - temperature log p(d).
    """
    words, likely = _beam(decoder, vectors, width=width)
    n, candidates, length = words.shape
    flat = words.view(n * candidates, length)
    common = (language(flat) * _until_stop(flat)).sum(dim=1).view(n, candidates)
    best = (likely - temperature * common).argmax(dim=1)
    chosen = words[torch.arange(n), best]
    count = _until_stop(chosen).sum(dim=1)
    sure = (likely[torch.arange(n), best] / count).exp()
    return [(vocabulary.decode(row.tolist()), float(score)) for row, score in zip(chosen, sure, strict=True)]


def _train_module(
    module: nn.Module, batches: Iterable[tuple[Tensor, ...]], *, rate: float = 2e-3, weight_decay: float = 1e-4
) -> list[float]:
    """Train a Decoder on (vectors, words) or a LanguageModel on (words,); the losses per word, batch by batch."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=weight_decay)
    module.train()
    losses = []
    for batch in batches:
        valid = _until_stop(batch[-1])
        loss = -(module(*batch) * valid).sum() / valid.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 5.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    module.eval()
    return losses


@dataclass(eq=False)
class _Decoders:
    """Both decoders with their words, and the scale of annotation vectors they were trained with."""

    decoder: _Decoder
    language: _LanguageModel
    vocabulary: _Vocabulary
    mean: Tensor
    spread: Tensor
    losses: dict[str, list[float]] = field(default_factory=dict)

    def describe(self, vectors: Tensor, *, width: int, temperature: float) -> list[tuple[str, float]]:
        """Descriptions of neurons given their annotation vectors (n, k, features), with scores."""
        scaled = (vectors - self.mean) / self.spread
        parts = (scaled[start : start + BATCH] for start in range(0, len(scaled), BATCH))
        models = self.decoder, self.language, self.vocabulary
        return [one for part in parts for one in _best_descriptions(*models, part, width=width, temperature=temperature)]


@register(
    "describer",
    "milan",
    paper="MILAN (Hernandez et al., ICLR 2022), as NSGen uses it",
    cost="the first time some minutes of training for a size of images, kept in the cache; then one pass over the data, and "
    "the exemplars once through the encoder",
    differs="Experimental and small. The original decoder was trained on human annotations of ImageNet neurons with a ResNet-101 "
    "as encoder, which do not come with neurotest; ours is trained on pairs it generates (`corpus`), with a network of the zoo "
    "as encoder, so that it says attributes and class names of the corpus and nothing else. The temperature is .2, as in both "
    "published programs; the papers' equation 4 has 1. Features under a mask are divided by its mass, as in MILAN's program, and "
    "its colour, area and place stand beside; NSGen's equation 6 is a plain sum (`pooling=sum`). `preset=paper` sets all three, "
    "and the decoder's 512 hidden units.",
    presets={"paper": {"pooling": "sum", "temperature": 1.0, "hidden": 512}},
)
class Milan(checks.Settings, Describer):
    """Says in words what a neuron's exemplars have in common under their masks; labels of the data are never looked at.

    p(d | R) is an attention LSTM over annotation vectors, p(d) a two-layer LSTM, both trained on a corpus; a beam of `beam`
    descriptions is ranked by log p(d | R) - temperature log p(d). The score is the mean probability per word; below `least`
    the neuron is unknown. corpus: labelled DATA to take class words from (default: the embedded training sets of that image
    size), or a folder of human annotations in MILAN's layout. pooling: features under a mask as their `mean` or `sum`.
    """

    opens: ClassVar[tuple[str, ...]] = ("corpus",)

    corpus: str | None = None
    embedding: int = checks.setting(128, "128 is usual")
    hidden: int = checks.setting(256, "256 is usual")
    pairs: int = checks.setting(500, "500 is usual")
    steps: int = checks.setting(400, "400 is usual")
    beam: int = checks.setting(50, "50 is usual")
    temperature: float = 0.2
    least: float = 0.2
    pooling: Literal["mean", "sum"] = "mean"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.temperature <= 1 or not 0 <= self.least < 1:
            raise BadInput(
                "out-of-range",
                "temperature",
                f"temperature={self.temperature}, least={self.least}: expected numbers from 0 to 1.",
            )

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        shape = material.shape
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(
                "unsuitable",
                "shape",
                f"milan describes neurons of networks on grey or colour images, not on {'x'.join(map(str, shape))}.",
            )
        annotate = annotator(shape[0], self.pooling)
        decoders = self.trained(shape, annotate)
        for layer in material.layers:
            vectors = _vectors_of(material, material.exemplars, annotate, layer.name)
            descriptions = decoders.describe(vectors, width=self.beam, temperature=self.temperature)
            for neuron, (text, score) in enumerate(descriptions):
                if text and score >= self.least:
                    yield NeuronDescription(layer.name, neuron, text, score, "milan")

    # -- training

    def trained(self, shape: tuple[int, ...], annotate: Annotator | None = None) -> _Decoders:
        """The decoders for images of a shape, from the cache where they were trained before."""
        annotate = annotate or annotator(shape[0], self.pooling)
        place = self._place(shape, annotate)
        if (decoders := _load(place)) is None:
            decoders = self.train(shape, annotate)
            with suppress(BadInput):
                _save(decoders, place)
        return decoders

    def train(self, shape: tuple[int, ...], annotate: Annotator) -> _Decoders:
        pairs = _training_pairs(self.corpus, self.pairs, self.seed, shape, annotate)
        vocabulary = _Vocabulary.of(pairs.texts)
        words = vocabulary.encode(pairs.texts)
        flat = pairs.vectors.flatten(0, 1)
        mean, spread = flat.mean(dim=0), flat.std(dim=0).clamp_min(1e-3)
        vectors = (pairs.vectors - mean) / spread
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            decoder = _Decoder(len(vocabulary.words), vectors.shape[2], embedding=self.embedding, hidden=self.hidden)
            language = _LanguageModel(len(vocabulary.words), embedding=self.embedding, hidden=self.hidden)
            losses = {"decoder": _train_module(decoder, self._batches(vectors, words))}
            losses["language"] = _train_module(language, ((w,) for _, w in self._batches(vectors, words)))
        return _Decoders(decoder, language, vocabulary, mean, spread, losses)

    def _batches(self, vectors: Tensor, words: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        random = rng.stream("semantics.milan.batches", self.seed)
        k = vectors.shape[1]
        for _ in range(self.steps):
            rows = torch.from_numpy(random.integers(0, len(vectors), BATCH))
            # Exemplars are left out and repeated at random: a neuron's are never as pure as a corpus makes them.
            kept = torch.from_numpy(random.integers(0, k, (BATCH, k)))
            texts = words[rows]
            longest = int(_until_stop(texts).sum(1).max())  # nothing counts behind it
            yield vectors[rows.unsqueeze(1), kept], texts[:, :longest]

    def _place(self, shape: tuple[int, ...], annotate: Annotator) -> Path:
        settings = replace(self, beam=1, temperature=0.0, least=0.0)  # what the weights do not depend on
        # How features are pooled is part of the annotator's fingerprint; decoders of earlier versions stay usable.
        words = repr(settings).replace(f", pooling={self.pooling!r}", "")
        about: tuple[Any, ...] = (FORMAT, words, shape, annotate.fingerprint, K, self._corpus_state())
        return cache_dir() / "describers" / f"milan-{blake2b(repr(about).encode(), digest_size=16).hexdigest()}.safetensors"

    def _corpus_state(self) -> str:
        """A hash of the corpus: of the annotations' file, or of the data."""
        if self.corpus is None:
            return ""
        file = Path(self.corpus).expanduser() / "annotations.csv"
        return (
            blake2b(read_bytes(file, "a table of annotations", limit=LARGEST), digest_size=16).hexdigest()
            if file.is_file()
            else read_data(self.corpus).digest()
        )


@functools.lru_cache(maxsize=1)  # decoders of several sizes learn from the same pairs
def _training_pairs(corpus: str | None, count: int, seed: int, shape: tuple[int, ...], annotate: Annotator) -> Pairs:
    """The pairs to learn from, of K exemplars each; a decoder takes any number of them."""
    if corpus is not None and (Path(corpus).expanduser() / "annotations.csv").is_file():
        return annotated_pairs(annotate, corpus, K)
    pairs = attribute_pairs(annotate, shape, count, K, seed)
    corpora = SHAPE_CORPORA.get(shape, ()) if corpus is None else (corpus,)
    for number, spec in enumerate(corpora):
        pairs = pairs + class_pairs(annotate, spec, shape, 2 * count // len(corpora), K, seed + number)
    return pairs


def _vectors_of(material: Material, exemplars: Exemplars, annotate: Annotator, layer: str) -> Tensor:
    """Annotation vectors of a layer's exemplars under their masks: (neurons, k, features); a place without one repeats the
    first."""
    low, high = material.target.bounds
    parts = []
    for some in regions(exemplars, material.target, material.source, layer, batch=material.safe_batch()):
        count, k = some.rows.shape
        rows = np.where(some.positions >= 0, some.rows, some.rows[:, :1])
        masks = np.where((some.positions >= 0)[..., None, None], some.masks, some.masks[:, :1])
        x = (material.target.prepare(some.inputs).cpu() - low) / (high - low)
        vectors = annotate(x[torch.from_numpy(rows.ravel())], torch.from_numpy(masks.reshape(count * k, *masks.shape[2:])))
        parts.append(vectors.view(count, k, -1))
    return torch.cat(parts)


def _save(decoders: _Decoders, place: Path) -> None:
    from safetensors.torch import save_file

    tensors = {"mean": decoders.mean, "spread": decoders.spread}
    for name, module in zip(STORED, (decoders.decoder, decoders.language), strict=True):
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in module.state_dict().items()}
    sizes = {"embedding": decoders.decoder.embed.embedding_dim, "hidden": decoders.decoder.cell.hidden_size}
    with atomic_write(place) as part:
        save_file(tensors, part, {"about": json.dumps({"words": decoders.vocabulary.words, **sizes})})


def _load(place: Path) -> _Decoders | None:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    try:
        with safe_open(place, framework="pt") as file:
            about = json.loads(file.metadata()["about"])
        tensors = load_file(place)
        words = _Vocabulary(tuple(about["words"]))
        sizes = {"embedding": int(about["embedding"]), "hidden": int(about["hidden"])}
        decoder = _Decoder(len(words.words), len(tensors["mean"]), **sizes)
        language = _LanguageModel(len(words.words), **sizes)
        for name, module in zip(STORED, (decoder, language), strict=True):
            module.load_state_dict({k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")})
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError):  # absent or damaged: trained again
        return None
    return _Decoders(decoder.eval(), language.eval(), words, tensors["mean"], tensors["spread"])
