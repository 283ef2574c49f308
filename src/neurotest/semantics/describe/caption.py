"""Words from annotation vectors: an attention LSTM for p(description | region), an LSTM for p(description), a beam search."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

START, STOP, ODD = 0, 1, 2  # numbers of the tokens that are no words
SPECIAL = ("<start>", "<stop>", "<odd>")
LENGTH = 15


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
class Vocabulary:
    """Words by number; the first three are start, stop and unknown words."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
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


class Decoder(nn.Module):
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


class LanguageModel(nn.Module):
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


def until_stop(words: Tensor) -> Tensor:
    """Which places of descriptions count: up to and with the first stop."""
    stops = (words == STOP).long()
    return stops.cumsum(dim=1) - stops == 0


@torch.no_grad()
def _beam(decoder: Decoder, vectors: Tensor, *, width: int = 50, length: int = LENGTH) -> tuple[Tensor, Tensor]:
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
def best_descriptions(
    decoder: Decoder, language: LanguageModel, vocabulary: Vocabulary, vectors: Tensor, *, width: int, temperature: float
) -> list[tuple[str, float]]:
    """Each neuron's description and its mean probability per word.

    Of the beam the one that says most about this neuron: largest log p(d | R) - temperature log p(d).
    """
    words, likely = _beam(decoder, vectors, width=width)
    n, candidates, length = words.shape
    flat = words.view(n * candidates, length)
    common = (language(flat) * until_stop(flat)).sum(dim=1).view(n, candidates)
    best = (likely - temperature * common).argmax(dim=1)
    chosen = words[torch.arange(n), best]
    count = until_stop(chosen).sum(dim=1)
    sure = (likely[torch.arange(n), best] / count).exp()
    return [(vocabulary.decode(row.tolist()), float(score)) for row, score in zip(chosen, sure, strict=True)]


def train_module(
    module: nn.Module, batches: Iterable[tuple[Tensor, ...]], *, rate: float = 2e-3, weight_decay: float = 1e-4
) -> list[float]:
    """Train a Decoder on (vectors, words) or a LanguageModel on (words,); the losses per word, batch by batch."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=weight_decay)
    module.train()
    losses = []
    for batch in batches:
        valid = until_stop(batch[-1])
        loss = -(module(*batch) * valid).sum() / valid.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 5.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    module.eval()
    return losses
