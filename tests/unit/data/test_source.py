"""Sources: reading, taking, ids, labels, originals, shapes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.refusals import refused

from neurotest.data import ArraySource, Source, check_shape, source
from neurotest.data.spec import data

INPUTS: st.SearchStrategy[np.ndarray] = hnp.arrays(
    st.sampled_from([np.dtype(np.uint8), np.dtype(np.float32)]),
    st.tuples(st.integers(1, 8), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    elements={"min_value": 0, "max_value": 200},
)


def counting(n: int = 6, **about: Any) -> Source:
    """Input i holds i everywhere, so positions can be read off the pixels."""
    x = np.repeat(np.arange(n, dtype=np.uint8), 4).reshape(n, 1, 2, 2)
    return ArraySource(x, np.arange(n), **about)


def test_read_by_hand() -> None:
    some = counting()
    assert len(some) == 6
    assert some.shape == (1, 2, 2)
    assert some.dtype == np.uint8
    assert some.read(np.array([4, 1, 4]))[:, 0, 0, 0].tolist() == [4, 1, 4]


def test_what_is_read_may_be_written_to_without_changing_the_source() -> None:
    some = counting()
    rows = some.read([0, 1])
    rows[:] = 77
    assert rows.flags.c_contiguous
    assert some.read([0])[0, 0, 0, 0] == 0


def test_an_id_is_the_hash_of_dtype_shape_and_bytes() -> None:
    x = np.array([[1, 2, 3]], np.uint8)
    expected = hashlib.blake2b(b"uint8 3 " + bytes([1, 2, 3]), digest_size=8).hexdigest()
    assert ArraySource(x).ids().tolist() == [expected]
    assert ArraySource(x).ids().dtype == np.dtype("U16")


def test_equal_bytes_of_another_shape_or_type_have_other_ids() -> None:
    x = np.zeros((1, 1, 2, 2), np.uint8)
    others = [x, x.reshape(1, 2, 2, 1), x.reshape(1, 4), np.zeros((1, 1), np.float32)]
    assert len({ArraySource(other).ids()[0] for other in others}) == 4


@given(INPUTS)
def test_ids_depend_on_content_only(x: np.ndarray) -> None:
    ids = ArraySource(x, spec="one").ids()
    turned = ArraySource(np.asfortranarray(x[::-1]), np.arange(len(x)), spec="two").ids()
    assert ids.tolist() == turned[::-1].tolist()
    for i in range(len(x)):
        for j in range(len(x)):
            assert (ids[i] == ids[j]) == (x[i].tobytes() == x[j].tobytes())


def test_ids_do_not_depend_on_the_chunk_they_are_computed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counting(50).ids()
    monkeypatch.setattr(source, "CHUNK", 12)
    assert counting(50).ids().tolist() == whole.tolist()


# -- the digest of a whole source


def test_equal_data_have_equal_digests_wherever_they_come_from(tmp_path: Path) -> None:
    x, y = counting(20).read(np.arange(20)), np.arange(20) % 3
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "b.npz", images=x, labels=y.astype(np.int32))
    here = ArraySource(np.asfortranarray(x), y, spec="here", classes=("a", "b", "c"))
    specs = (f"npz:{tmp_path / 'a.npz'}#x,y", f"npz:{tmp_path / 'b.npz'}#images,labels")
    assert {data(spec).digest() for spec in specs} == {here.digest()}
    assert data(specs[0] + "[5:9]").digest() == here.take([5, 6, 7, 8]).digest()
    assert len(here.digest()) == 64


@settings(max_examples=60)
@given(INPUTS, st.data())
def test_any_changed_byte_label_or_order_changes_the_digest(x: np.ndarray, chosen: st.DataObject) -> None:
    labels = np.arange(len(x)) % 3
    digest = ArraySource(x, labels).digest()
    assert ArraySource(x.copy(), labels.tolist()).digest() == digest
    changed = np.ascontiguousarray(x).copy()
    raw = changed.reshape(-1).view(np.uint8)
    raw[chosen.draw(st.integers(0, len(raw) - 1))] ^= 1  # the last bit: a float stays finite or nearly so
    if np.isfinite(changed).all():
        assert ArraySource(changed, labels).digest() != digest
    other = labels.copy()
    other[chosen.draw(st.integers(0, len(x) - 1))] += 1
    assert ArraySource(x, other).digest() != digest
    assert ArraySource(x).digest() != digest
    assert ArraySource(x, labels).take(np.arange(len(x) - 1)).digest() != digest


def test_digest_tells_types_and_shapes_apart_and_reads_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = np.zeros((4, 1, 2, 8), np.uint8)
    same_bytes = [zeros, zeros.reshape(4, 1, 4, 4), zeros.reshape(4, 16), zeros.reshape(2, 32), np.zeros((4, 4), np.float32)]
    assert len({ArraySource(x).digest() for x in same_bytes}) == len(same_bytes)
    whole = counting(50).digest()
    monkeypatch.setattr(source, "CHUNK", 12)
    assert counting(50).digest() == whole


def test_digest_reads_the_inputs_once_and_follows_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    some = counting(6)
    some.digest()
    bare = some.without_labels()
    assert some.labels is not None
    monkeypatch.setattr(ArraySource, "_rows", lambda self, index: pytest.fail("read again"))
    assert bare.digest() != some.digest()
    bare.labels = some.labels
    assert bare.digest() == some.digest()


@settings(max_examples=60)
@given(INPUTS, st.data())
def test_take_and_read_agree(x: np.ndarray, chosen: st.DataObject) -> None:
    labels = np.arange(len(x)) % 3
    all_of_it = ArraySource(x, labels, classes=("a", "b", "c"), spec="s", originals=ArraySource(x[::-1]))
    index = np.array(chosen.draw(st.lists(st.integers(0, len(x) - 1), min_size=1, max_size=10)))
    if chosen.draw(st.booleans()):
        all_of_it.ids()  # cached or not, the answers are the same
    part = all_of_it.take(index)
    everything = np.arange(len(index))
    assert (part.read(everything) == all_of_it.read(index)).all()
    assert part.originals is not None
    assert (part.originals.read(everything) == x[::-1][index]).all()
    assert part.labels is not None
    assert part.labels.tolist() == labels[index].tolist()
    assert part.ids().tolist() == all_of_it.ids()[index].tolist()
    assert part.positions.tolist() == index.tolist()
    assert (part.spec, part.classes, part.shape, part.dtype) == ("s", ("a", "b", "c"), x.shape[1:], x.dtype)
    again = chosen.draw(st.lists(st.integers(0, len(index) - 1), max_size=4))
    assert part.take(again).positions.tolist() == index[again].tolist()
    assert len(all_of_it) == len(x)


def test_take_by_mask_and_take_nothing() -> None:
    some = counting()
    assert some.take(np.array([True, False, False, True, False, False])).positions.tolist() == [0, 3]
    assert len(some.take([])) == 0
    assert some.take([]).ids().tolist() == []


def test_draws_and_names_follow_their_inputs() -> None:
    part = counting(notes={"draws": np.arange(6) * 10, "seed": 3}, names=list("abcdef")).take([5, 2])
    assert part.notes["draws"].tolist() == [50, 20]
    assert part.notes["seed"] == 3
    assert part.names is not None
    assert part.names.tolist() == ["f", "c"]


@pytest.mark.parametrize("index", [[-1], [6], [0.5], [[0]], [True, False]])
def test_positions_that_do_not_exist_are_refused(index: Any) -> None:
    with refused(("out-of-range", "wrong-type"), None):
        counting().read(index)
    with refused(("out-of-range", "wrong-type"), None):
        counting().take(index)


def test_float64_becomes_float32() -> None:
    some = ArraySource(np.full((2, 3), 0.1))
    assert some.dtype == np.float32
    assert some.read([0]).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "refusal"),
    [
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), ("not-finite", "inputs")),
        (np.array([[1.0, np.inf]]), ("not-finite", "inputs")),
        (np.array([[1e300, 0.0]]), ("not-finite", "inputs")),
        (np.zeros((2, 3), np.int64), ("wrong-type", "inputs")),
        (np.zeros((2, 3), bool), ("wrong-type", "inputs")),
        (np.zeros((2, 3), complex), ("wrong-type", "inputs")),
        (np.zeros(5, np.uint8), ("wrong-shape", "inputs")),
        (np.zeros((5, 0), np.uint8), ("empty", "inputs")),
    ],
)
def test_inputs_that_cannot_be_used(x: np.ndarray, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        ArraySource(x)


def test_a_nan_far_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK", 64)
    x = np.zeros((100, 4), np.float32)
    x[83, 2] = np.nan
    with refused("not-finite", "inputs"):
        ArraySource(x)


@pytest.mark.parametrize(
    ("labels", "refusal"),
    [
        ([0, 1], ("wrong-count", "labels")),
        ([0, 1, -1], ("out-of-range", "labels")),
        ([0, 2, 1], ("out-of-range", "labels")),
        ([0.0, 1.0, 1.0], ("wrong-type", "labels")),
        (np.eye(3), ("wrong-shape", "labels")),
        (np.zeros((3, 2, 2), int), ("wrong-shape", "labels")),
    ],
)
def test_labels_that_cannot_be_used(labels: Any, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        ArraySource(np.zeros((3, 2), np.uint8), labels, classes=("no", "yes"))


def test_a_column_of_labels_is_a_list_of_labels() -> None:
    labels = ArraySource(np.zeros((3, 2), np.uint8), np.array([[2], [0], [1]], np.uint8)).labels
    assert labels is not None
    assert labels.tolist() == [2, 0, 1]
    assert labels.dtype == np.int64


def test_originals_must_fit() -> None:
    some = counting()
    assert some.with_originals(counting()).originals is not None
    assert some.originals is None
    with refused("wrong-count", "originals"):
        some.with_originals(counting(5))
    with refused("wrong-count", "originals"):
        ArraySource(np.zeros((6, 4), np.uint8), originals=counting())


def test_without_labels() -> None:
    some = counting()
    assert some.without_labels().labels is None
    assert some.labels is not None


@pytest.mark.parametrize(
    ("have", "want", "refusal"),
    [
        ((28, 28, 1), (1, 28, 28), ("wrong-shape", "channels")),
        ((32, 30, 3), (3, 32, 30), ("wrong-shape", "channels")),
        ((784,), (1, 28, 28), ("wrong-shape", "order")),
        ((1, 32, 32), (1, 28, 28), ("wrong-shape", "size")),
        ((3, 28, 28), (1, 28, 28), ("wrong-shape", "size")),
    ],
)
def test_wrong_shape_or_channel_order(have: tuple[int, ...], want: tuple[int, ...], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        check_shape(ArraySource(np.zeros((1, *have), np.uint8), spec="npz:f.npz"), want)


def test_the_right_shape_passes() -> None:
    check_shape(counting(), (1, 2, 2))


def test_repr_says_what_it_is() -> None:
    assert repr(counting(spec="npz:a.npz")) == "<ArraySource 'npz:a.npz': 6 x 1x2x2 uint8, labelled>"


def test_contained_by_hand() -> None:
    x = np.arange(40, dtype=np.uint8).reshape(4, 1, 2, 5)
    pool = ArraySource(x[[2, 0, 3, 2]])
    assert pool.contained(ArraySource(x[1:3])).tolist() == [0, 3]
    assert pool.contained(ArraySource(x[1:2])).tolist() == []
    assert pool.contained(ArraySource(x[1:3].reshape(2, 1, 5, 2))).tolist() == []  # the same bytes in another shape
    assert pool.contained(ArraySource(x[:0])).tolist() == []


def test_contained_does_not_trust_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurotest.data.source.quick_keys", lambda x: np.zeros(len(x), dtype=np.uint64))
    x = np.arange(40, dtype=np.uint8).reshape(4, 1, 2, 5)
    assert ArraySource(x[[2, 0, 3, 2]]).contained(ArraySource(x[1:3])).tolist() == [0, 3]


@given(
    hnp.arrays(
        np.uint8, st.tuples(st.integers(1, 6), st.just(1), st.integers(1, 3), st.integers(1, 9)), elements=st.integers(0, 1)
    ),
    st.data(),
)
def test_contained_is_what_ids_say(x: np.ndarray, chosen: st.DataObject) -> None:
    some = chosen.draw(st.lists(st.integers(0, len(x) - 1)))
    pool, other = ArraySource(x), ArraySource(x[some])
    assert pool.contained(other).tolist() == np.flatnonzero(np.isin(pool.ids(), other.ids())).tolist()
    keys = source.quick_keys(x)
    same = (x[:, None] == x[None]).all(axis=(2, 3, 4))
    assert ((keys[:, None] == keys[None]) == same).all()  # so few inputs never meet by chance
