"""The trained describer: its decoders and search against plain enumeration, its corpus, and that it learns."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.semantics.describe.corpus import _annotated, annotated_pairs, annotator, attribute_pairs, class_pairs
from neurotest.semantics.describe.milan import (
    ODD,
    SPECIAL,
    START,
    STOP,
    Milan,
    _beam,
    _best_descriptions,
    _Decoder,
    _Decoders,
    _joined,
    _LanguageModel,
    _tokens,
    _train_module,
    _until_stop,
    _Vocabulary,
)  # fmt: skip
from neurotest.semantics.descriptions import describe

pytestmark = pytest.mark.by_hand


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["red", "t-shirt", ",", "7", "ankle", "boot", ";"]), max_size=8))
def test_words_there_and_back(words: list[str]) -> None:
    vocabulary = _Vocabulary.of([_joined(words), "red"])
    assert _tokens(_joined(words)) == words
    (row,) = vocabulary.encode([_joined(words)])
    assert vocabulary.decode(row.tolist()) == _joined(words)
    assert vocabulary.words[:3] == SPECIAL
    assert vocabulary.encode(["xyzzy"])[0, 0] == ODD


def small(words: int = 5, seed: int = 0) -> tuple[_Decoder, _LanguageModel]:
    torch.manual_seed(seed)
    decoder = _Decoder(words, 3, embedding=4, hidden=6).eval()
    with torch.no_grad():
        decoder.out.weight.mul_(6)  # decided enough for an order
    return decoder, _LanguageModel(words, embedding=4, hidden=6).eval()


def sequences(words: int, length: int) -> list[tuple[int, ...]]:
    """Every description of at most `length` words, padded with stops."""
    unique = set()
    for row in itertools.product(range(words), repeat=length + 1):
        end = row.index(STOP) if STOP in row else length + 1
        unique.add(row[:end] + (STOP,) * (length + 1 - end))
    return sorted(unique)


def test_probabilities_of_all_descriptions_sum_to_one() -> None:
    """Both models are proper: over all texts of up to three places, probabilities up to the first stop sum to 1."""
    decoder, language = small(4)
    rows = torch.tensor(sequences(4, 2))
    vectors = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1)).expand(len(rows), -1, -1)
    with torch.no_grad():
        for logs in (decoder(vectors, rows), language(rows)):
            assert float((logs * _until_stop(rows)).sum(dim=1).exp().sum()) == pytest.approx(1, abs=1e-4)


def test_a_wide_beam_finds_what_enumeration_finds() -> None:
    decoder, _ = small(5)
    vectors = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(2))
    rows = torch.tensor(sequences(5, 2))
    words, likely = _beam(decoder, vectors, width=5, length=2)
    for n in range(3):
        with torch.no_grad():
            logs = (decoder(vectors[n : n + 1].expand(len(rows), -1, -1), rows) * _until_stop(rows)).sum(dim=1)
        # Width 5 keeps every first word of 5, so the likeliest description cannot be lost at the first step.
        best = rows[logs.argmax()].tolist()
        assert words[n, 0].tolist() == best
        assert float(likely[n, 0]) == pytest.approx(float(logs.max()), abs=1e-4)
        assert likely[n].tolist() == sorted(likely[n].tolist(), reverse=True)


def test_reranking_by_hand() -> None:
    """The description with the largest log p(d | R) - T log p(d) of the beam, computed here one by one."""
    decoder, language = small(5, seed=3)
    vocabulary = _Vocabulary((*SPECIAL, "a", "b"))
    vectors = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(4))
    for temperature in (0.0, 0.2, 1.0):
        descriptions = _best_descriptions(decoder, language, vocabulary, vectors, width=5, temperature=temperature)
        words, likely = _beam(decoder, vectors, width=5)
        for n in range(2):
            with torch.no_grad():
                common = (language(words[n]) * _until_stop(words[n])).sum(dim=1)
            best = int((likely[n] - temperature * common).argmax())
            assert descriptions[n][0] == vocabulary.decode(words[n, best].tolist())
            per_word = float((likely[n, best] / _until_stop(words[n])[best].sum()).exp())
            assert descriptions[n][1] == pytest.approx(per_word, rel=1e-4)


def test_decoders_learn_what_vectors_say() -> None:
    texts = ["red areas", "vertical lines", "ankle boot, bag"]
    vocabulary = _Vocabulary.of(texts)
    words = vocabulary.encode(texts)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    decoder, language = (
        _Decoder(len(vocabulary.words), 3, embedding=16, hidden=24),
        _LanguageModel(len(vocabulary.words), embedding=8, hidden=8),
    )

    def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
        rows = torch.arange(3).repeat(8)
        return [
            (torch.eye(3)[rows].unsqueeze(1) + 0.2 * torch.randn(24, 6, 3, generator=generator), words[rows]) for _ in range(80)
        ]

    losses = _train_module(decoder, batches(), rate=1e-2)
    _train_module(language, [(w,) for _, w in batches()[:30]])
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])
    decoders = _Decoders(decoder, language, vocabulary, torch.zeros(3), torch.ones(3))
    descriptions = decoders.describe(torch.eye(3).unsqueeze(1).expand(-1, 6, -1), width=10, temperature=0.2)
    assert [text for text, _ in descriptions] == texts
    assert all(0 < score <= 1 for _, score in descriptions)
    # Attention looks at any number of exemplars.
    assert [text for text, _ in decoders.describe(torch.eye(3).unsqueeze(1), width=10, temperature=0.2)] == texts


def test_start_is_never_said_after_training() -> None:
    assert START not in _Vocabulary.of(["red"]).encode(["red red"]).tolist()[0]


# -- the corpus


@pytest.fixture(scope="module")
def pairs() -> object:
    return attribute_pairs(annotator(1), (1, 28, 28), 12, 4, seed=0)


def test_vectors_of_generated_sets_follow_their_words(pairs) -> None:  # type: ignore[no-untyped-def]
    assert pairs.vectors.shape == (12, 4, 1 + 128 + 3)
    assert len(pairs) == 12
    assert all(pairs.texts)
    again = attribute_pairs(annotator(1), (1, 28, 28), 12, 4, seed=0)
    assert again.texts == pairs.texts
    assert torch.equal(again.vectors, pairs.vectors)


def test_annotation_vectors_by_hand() -> None:
    """The first entry is the mean pixel under the mask, the last the mask's share of the image, before it its centre."""
    x = torch.zeros(2, 1, 28, 28)
    x[:, :, :14] = 1.0
    masks = torch.zeros(2, 28, 28)
    masks[0, :14] = 1
    masks[1, :, :7] = 1
    vectors = annotator(1)(x, masks)
    assert vectors[:, 0].tolist() == pytest.approx([1.0, 0.5])
    assert vectors[:, -1].tolist() == pytest.approx([0.5, 0.25])
    assert vectors[0, -3:-1].tolist() == pytest.approx([-0.519, 0], abs=1e-2)
    assert vectors[1, -3:-1].tolist() == pytest.approx([0, -0.778], abs=1e-2)


def test_class_sets_name_classes_in_order() -> None:
    pairs = class_pairs(annotator(1), "zoo:fashion-mnist/train[:80]", (1, 28, 28), 10, 5, seed=0)
    names = {"t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"}
    assert all(set(text.lower().split(", ")) <= names for text in pairs.texts)
    assert pairs.vectors.shape[:2] == (10, 5)


def annotated_folder(root: Path) -> Path:
    """A folder in the layout of MILANNOTATIONS with two neurons of three exemplars each."""
    (root / "layer1").mkdir(parents=True)
    images = np.zeros((2, 3, 1, 28, 28), np.uint8)
    images[1] = 200
    masks = np.zeros((2, 3, 1, 28, 28), np.uint8)
    masks[:, :, :, :14] = 1
    np.save(root / "layer1" / "images.npy", images)
    np.save(root / "layer1" / "masks.npy", masks)
    np.save(root / "layer1" / "units.npy", np.array([4, 9]))
    (root / "annotations.csv").write_text(
        "layer,unit,summary\nlayer1,4,dark things\nlayer1,9,bright\nlayer1,4,night\nlayer1,5,x\n"
    )
    return root


def test_human_annotations_are_read(tmp_path: Path) -> None:
    first, second = _annotated(annotated_folder(tmp_path / "a"))
    assert list(first[2]) == ["dark things", "night"]
    assert list(second[2]) == ["bright"]
    assert first[1].shape == (3, 28, 28)
    assert first[1][:, :14].all()
    pairs = annotated_pairs(annotator(1), tmp_path / "a", 4)
    assert pairs.texts == ("dark things", "night", "bright")
    assert pairs.vectors[2, :, 0].tolist() == pytest.approx([200 / 255] * 4)


def test_annotations_that_do_not_fit(tmp_path: Path) -> None:
    root = annotated_folder(tmp_path / "a")
    np.save(root / "layer1" / "masks.npy", np.zeros((2, 3, 1, 5, 5), np.uint8))
    with refused("wrong-count", "images"):
        list(_annotated(root))
    (root / "layer1" / "images.npy").unlink()
    with refused("not-found"):
        list(_annotated(root))
    with refused("not-found"):
        list(_annotated(tmp_path))


def test_the_describer_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, so that it learns little: what counts is that it is trained once, kept, and looks at no label."""
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    method = Milan(corpus="zoo:fashion-mnist/train[:60]", pairs=12, steps=6, embedding=8, hidden=12, beam=5, least=0.0)
    from neurotest.data.spec import data

    source = data("zoo:fashion-mnist/test[:40]")
    table = describe("zoo:fashion-lenet1", source, method, layers="relu2,fc1", k=3)
    assert sum(row.known for row in table) > 0
    assert all(0 <= row.score <= 1 for row in table)
    kept = list((tmp_path / "describers").glob("milan-*.safetensors"))
    assert len(kept) == 1
    monkeypatch.setattr(Milan, "train", lambda *_: pytest.fail("trained again"))
    unlabelled = describe("zoo:fashion-lenet1", source.without_labels(), method, layers="relu2,fc1", k=3)
    assert [row.text for row in unlabelled] == [row.text for row in table]


@pytest.mark.parametrize(
    ("settings_", "refusal"),
    [
        ({"steps": 0}, ("out-of-range", "steps")),
        ({"temperature": 2}, ("out-of-range", "temperature")),
        ({"beam": 0}, ("out-of-range", "beam")),
    ],
)
def test_bad_settings(settings_: dict[str, int], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        Milan(**settings_)  # type: ignore[arg-type]


def test_no_images_no_words() -> None:
    from torch import nn

    from neurotest.data.source import ArraySource
    from neurotest.target import Target

    flat = Target(nn.Linear(12, 3).eval(), shape=(12,))
    with refused("unsuitable", "shape"):
        describe(flat, ArraySource(np.random.default_rng(0).random((4, 12))), "milan", cache=False)
