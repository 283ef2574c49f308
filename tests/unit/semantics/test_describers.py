"""Class profiles, concept folders, imported tables and CLIP-Dissect's scoring: by hand, against loops, and bad input."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.golden import BESIDE
from tests.refusals import refused
from tests.unit.semantics.subjects import CLASSES, source, target

from neurotest.data.source import ArraySource
from neurotest.semantics.describe.clip import _soft_wpmi
from neurotest.semantics.describe.concepts import _areas
from neurotest.semantics.describe.profile import ClassProfile, _lift_of, _selectivity
from neurotest.semantics.descriptions import DEAD, UNKNOWN, describe

pytestmark = pytest.mark.by_hand

CONCEPTS = BESIDE / "data" / "concepts"


def texts(method: object, data: ArraySource | None = None, layer: str = "fc", **more: object) -> list[str]:
    table = describe(target(), data if data is not None else source(), method, cache=False, **more)  # type: ignore[arg-type]
    return [row.text for row in table.layer(layer)]


# -- class profiles


def test_class_profile_by_hand() -> None:
    means = np.array([[4.0, 1.0], [0.0, 1.0], [2.0, 1.0], [np.nan, np.nan]])  # the last class was never seen
    assert _lift_of(means).tolist() == [[2.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert _selectivity(np.array([2.0, 0.0, 1.0])) == pytest.approx((2 - 0.5) / (2 + 0.5))
    assert _selectivity(np.array([1.0, 1.0])) == 0
    assert _selectivity(np.array([0.0, 0.0])) == 0


def test_class_profile_names_the_right_classes_and_the_dead() -> None:
    assert texts("class-profile") == list(CLASSES)
    assert texts("class-profile", layer="relu") == [*CLASSES, DEAD]
    assert texts("class-profile:lift=4") == [UNKNOWN] * 4
    assert texts("class-profile:numbers=true,most=1")[0].startswith("upper left (x")


def test_a_class_with_few_inputs_is_not_named_by_chance() -> None:
    """Images without classes, labelled at random: with 3 per class lifts are large by chance, and nothing must be said."""
    random = np.random.default_rng(0)
    x = random.exponential(0.1, (12, 1, 8, 8)).clip(0, 1).astype(np.float32)
    data = ArraySource(x, np.arange(12) % 4, classes=CLASSES, spec="noise")
    assert texts(ClassProfile(lift=1.0), data) == [UNKNOWN] * 4


def test_class_profile_against_a_loop() -> None:
    table = describe(target(), source(), "class-profile", cache=False)
    x, labels = source().read(np.arange(40)), source().labels
    for neuron in range(4):
        values = 4 * x[:, 0, 4 * (neuron // 2) :, 4 * (neuron % 2) :][:, :4, :4].mean(axis=(1, 2))
        per_class = np.array([max(0, values[labels == c].mean() - np.quantile(values, 0.01)) for c in range(4)])
        assert table["fc", neuron].score == pytest.approx(per_class.max() / per_class.mean(), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), min_size=2, max_size=6))
def test_lifts_average_one(rows: list[list[float]]) -> None:
    lifts = _lift_of(np.array(rows))
    assert np.allclose(lifts.mean(axis=0), 1)
    assert (lifts <= len(rows) + 1e-9).all()


def test_class_profile_bad_input() -> None:
    with refused("no-labels", "data"):
        texts("class-profile", source(labelled=False))
    with refused("missing", "data"):
        describe(target(), None, "class-profile", cache=False)
    with refused("duplicate", "classes"):
        describe(target(("a", "b", "a", "c")), ArraySource(source().read([0, 1]), [0, 1]), "class-profile", cache=False)
    with refused("out-of-range", "most"):
        ClassProfile(most=0)


def test_classes_without_names_are_numbers() -> None:
    named = describe(target(), source(), "class-profile", cache=False)
    unnamed = ArraySource(source().read(np.arange(40)), source().labels)
    table = describe(target(None), unnamed, "class-profile", cache=False)
    assert [table["fc", n].text for n in range(4)] == ["class 0", "class 1", "class 2", "class 3"]
    assert [row.known for row in table] == [row.known for row in named]
    assert any("--classes FILE" in note for note in table.notes)
    assert not named.notes


def test_combined_says_both_halves_and_does_without_labels() -> None:
    with_labels = describe(target(), source(), "combined", cache=False)
    assert all(name in with_labels["fc", n].text for n, name in enumerate(CLASSES))
    without = describe(target(), source(labelled=False), "combined", cache=False)
    assert not any(name in row.text for row in without for name in CLASSES)
    assert "no labels" in without.notes[0]
    assert all(0 <= row.score <= 1 for row in with_labels)


# -- concept folders


def folder(root: Path, names: tuple[str, ...] = CLASSES, each: int = 12) -> Path:
    data = source(4 * each, seed=3)
    for position in range(len(data)):
        label = int(data.labels[position])  # type: ignore[index]
        if label < len(names):
            (root / names[label]).mkdir(parents=True, exist_ok=True)
            pixels = np.rint(data.read([position])[0, 0].clip(0, 1) * 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / names[label] / f"{position}.png")
    return root


def test_concepts_name_output_neurons_without_labels(tmp_path: Path) -> None:
    names = ("apple", "bread", "cherry", "date")
    assert texts(f"concepts:{folder(tmp_path / 'c', names)}", source(labelled=False)) == list(names)
    assert texts(f"concepts:{tmp_path / 'c'}", source(labelled=False), layer="relu") == [*names, DEAD]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 4))
def test_auc_is_the_share_of_pairs_in_order(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 5, (15, 2)).astype(np.float32)
    groups = np.concatenate([np.arange(count), random.integers(-1, count, 15 - count)])
    area, _ = _areas(values, groups, count)
    for c in range(count):
        for neuron in range(2):
            own, rest = values[groups == c, neuron], values[groups != c, neuron]
            pairs = (own[:, None] > rest).mean() + 0.5 * (own[:, None] == rest).mean()
            assert area[c, neuron] == pytest.approx(pairs)


def test_concepts_bad_input(tmp_path: Path) -> None:
    with refused("not-found", "data"):
        texts(f"concepts:{tmp_path / 'none'}")
    (tmp_path / "flat").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "flat" / "a.png")
    with refused("missing", "concepts"):
        texts(f"concepts:{tmp_path / 'flat'}")
    with refused("too-few", "images"):
        texts(f"concepts:{folder(tmp_path / 'few', each=1)}")
    with refused("too-few", "concepts"):
        describe(target(), None, f"concepts:{folder(tmp_path / 'one', ('a',))}", cache=False)
    with refused("out-of-range", "auc"):
        texts(f"concepts:folder={tmp_path},auc=0.2")


# -- imported tables


def test_tables_of_milan_clip_dissect_and_network_dissection(tmp_path: Path) -> None:
    milan, clip, dissect = (tmp_path / f"{name}.csv" for name in ("milan", "clip", "dissect"))
    milan.write_text("layer,unit,description\nfc,0,Top of  things\nfc,0,a second opinion\nfc,3,\n")
    clip.write_text("layer,unit,description,similarity\nfc,1,snow,0.25\n")
    dissect.write_text("unit,category,label,score\n1,color,green-c,0.01\n")
    assert texts(f"csv:{milan}") == ["Top of things", UNKNOWN, UNKNOWN, UNKNOWN]
    table = describe(target(), None, f"csv:{clip}", cache=False)
    assert (table["fc", 1].text, table["fc", 1].score) == ("snow", 0.25)
    assert "no fingerprint" in table.notes[0]
    assert texts(f"csv:file={dissect},layer=fc,first=1")[0] == "green-c"


def test_a_table_of_another_network_is_refused(tmp_path: Path) -> None:
    own = describe(target(), source(), "class-profile", cache=False).to_csv(tmp_path / "own.csv")
    assert texts(f"csv:{own}") == list(CLASSES)
    other = target()
    other.module.fc.bias.data += 1
    with refused("changed", "target"):
        describe(other, None, f"csv:{own}", cache=False)
    wrong = tmp_path / "wrong.csv"
    for text, refusal in [
        ("layer,unit,description\nlayer4,0,x\n", ("unknown-name", "layer")),
        ("layer,unit,description\nfc,4,x\n", ("out-of-range", "neuron")),
        ("layer,unit,description\nfc,one,x\n", ("wrong-type", "neuron")),
        ("layer,unit\nfc,1\n", ("unknown-option", "columns")),
        ("layer,unit,description\n", ("empty", "file")),
        ("unit,description\n1,x\n", ("unknown-option", "columns")),
    ]:
        wrong.write_text(text)
        with refused(*refusal):
            texts(f"csv:{wrong}")
    with refused("not-found"):
        texts(f"csv:{tmp_path / 'none.csv'}")


def test_an_edited_table_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "t.csv"
    file.write_text("layer,unit,description\nfc,0,old\n")
    assert describe(target(), None, f"csv:{file}")["fc", 0].text == "old"
    file.write_text("layer,unit,description\nfc,0,new\n")
    assert describe(target(), None, f"csv:{file}")["fc", 0].text == "new"


@pytest.mark.skipif(not CONCEPTS.is_dir(), reason="the published tables of MILAN and CLIP-Dissect are not here")
def test_published_tables_are_read() -> None:
    """Every published table is read whole: a network with these layers and sizes gets a word for each of its units."""
    import csv

    from neurotest.semantics.describe.imported import Imported

    for file in sorted([*(CONCEPTS / "MILAN_results").glob("*.csv"), *(CONCEPTS / "CLIP_Dissect_results").glob("*.csv")]):
        rows = Imported(file=str(file))._rows(target())
        with open(file, newline="") as text:
            published = list(csv.DictReader(text))
        assert len(rows) == len(published) > 1000
        assert [(r.layer, r.neuron) for r in rows[:50]] == [(p["layer"], int(p["unit"])) for p in published[:50]]
        assert sum(r.known for r in rows) > 0.99 * len(rows)


# -- CLIP-Dissect


def test_soft_wpmi_against_the_definition() -> None:
    """Word by word and image by image, from the formula: sum log(1 + p_k (p(c|x_k) - 1)) - log mean over neurons."""
    random = np.random.default_rng(0)
    similarity = random.uniform(-1, 1, (30, 5))
    index = np.stack([random.permutation(30)[:10] for _ in range(4)])
    score = _soft_wpmi(similarity, index)
    expected = np.zeros((4, 5))
    for neuron in range(4):
        for word in range(5):
            for k, image in enumerate(index[neuron]):
                row = np.exp(10 * similarity[image])
                belongs = 0.998 - k * (0.998 - 0.97) / 10
                expected[neuron, word] += np.log(1 + belongs * (row[word] / row.sum() - 1) + 1e-7)
    expected = expected - np.log(np.exp(expected).mean(axis=0))
    assert np.allclose(score, expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_soft_wpmi_follows_the_words(seed: int) -> None:
    """Words in another order give scores in that order; the order of neurons does not matter either."""
    random = np.random.default_rng(seed)
    similarity, index = random.uniform(-1, 1, (20, 4)), np.stack([random.permutation(20)[:6] for _ in range(3)])
    order, rows = random.permutation(4), random.permutation(3)
    assert np.allclose(_soft_wpmi(similarity[:, order], index[rows]), _soft_wpmi(similarity, index)[rows][:, order])


def clip_files(root: Path, data: ArraySource) -> dict[str, str]:
    """Real embeddings of one space: what a network makes of images, and of each class's mean image as its word."""
    x, y = data.read(np.arange(len(data))), data.labels
    features = x.reshape(len(x), 8, 8).reshape(len(x), 2, 4, 2, 4).mean(axis=(2, 4)).reshape(len(x), 4) - 0.2
    texts = np.stack([features[y == c].mean(axis=0) for c in range(4)])
    np.save(root / "images.npy", features.astype(np.float32))
    np.save(root / "texts.npy", texts.astype(np.float32))
    (root / "words.txt").write_text("apple\nbread\ncherry\ndate\n")
    return {"images": str(root / "images.npy"), "texts": str(root / "texts.npy"), "words": str(root / "words.txt")}


def test_clip_dissect_names_output_neurons(tmp_path: Path) -> None:
    files = clip_files(tmp_path, source())
    method = "clip-dissect:" + ",".join(f"{k}={v}" for k, v in files.items()) + ",top=8"
    assert texts(method) == ["apple", "bread", "cherry", "date"]


def test_clip_dissect_bad_input(tmp_path: Path) -> None:
    files = clip_files(tmp_path, source())
    method = "clip-dissect:" + ",".join(f"{k}={v}" for k, v in files.items())
    with refused("wrong-count", "images"):
        texts(method, source(20))
    (tmp_path / "words.txt").write_text("a\nb\n")
    with refused("wrong-count", "texts"):
        texts(method)
    (tmp_path / "words.txt").write_text("a\nb\na\nc\n")
    with refused("duplicate", "words"):
        texts(method)
    (tmp_path / "words.txt").write_text("a\nb\nc\nd\n")
    np.save(tmp_path / "texts.npy", np.zeros((4, 4), np.float32))
    with refused("not-finite", "texts"):
        texts(method)
    (tmp_path / "images.npy").write_bytes(b"no array")
    with refused("unsupported"):
        texts(method)


def test_a_pipe_in_place_of_a_file_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    """It would never end."""
    from neurotest.semantics.describe.clip import _embeddings, _words
    from neurotest.semantics.describe.corpus import _annotated
    from neurotest.semantics.describe.material import content_hash
    from neurotest.semantics.descriptions import read_rows

    pipe = tmp_path / "annotations.csv"
    os.mkfifo(pipe)
    (tmp_path / "model.json").symlink_to(pipe)
    readers: list[Callable[[], object]] = [
        lambda: _words(str(pipe)), lambda: _embeddings(str(pipe), "texts"), lambda: read_rows(pipe, ()),
        lambda: content_hash(str(pipe)), lambda: list(_annotated(tmp_path)), lambda: _words(str(tmp_path / "model.json")),
    ]  # fmt: skip
    for read in readers:
        with refused("not-a-file"):
            read()
