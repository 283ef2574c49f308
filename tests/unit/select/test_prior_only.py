"""The bank of changed training images, its cache, and the selector that needs no label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.jobs.opening import known_training
from neurotest.select import compare, select
from neurotest.select.adaptive import bank as banks
from neurotest.select.prior_only import PriorOnly
from neurotest.target import Target
from neurotest.target.load import load

from .subjects import TRAIN, centred, exact_pool, images, target


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_bank_has_every_copy_of_every_image() -> None:
    one, _ = banks.of_training(target(), TRAIN)
    assert len(one) == 5 * len(TRAIN)
    assert (np.bincount(one.images) == 5).all()
    assert np.array_equal(one.labels, TRAIN.labels[one.images])  # type: ignore[index]
    plain = one.operators == one.names.index("plain")
    assert plain.sum() == len(TRAIN)
    straight = target().logits(target().prepare(TRAIN.read(np.arange(len(TRAIN)))))
    assert one.facts.logits[plain] == pytest.approx(straight.detach().numpy(), abs=1e-5)  # there weights lie channels last


def test_a_bank_is_read_back_and_a_damaged_one_is_made_again(cache: Path) -> None:
    network = target()
    first, basis = banks.of_training(network, TRAIN)
    forwards = network.module._seen
    again, same = banks.of_training(network, TRAIN)
    assert network.module._seen == forwards
    assert np.array_equal(first.facts.features, again.facts.features)
    assert np.array_equal(basis.state()["3.turn"], same.state()["3.turn"])
    (file,) = (cache / "banks").glob("*.npz")
    file.write_bytes(file.read_bytes()[:1000])
    assert np.array_equal(banks.of_training(network, TRAIN)[0].facts.features, first.facts.features)
    assert network.module._seen == forwards + 5 * len(TRAIN) + 2 * banks.TRIED
    other = ArraySource(images(30, seed=2), (TRAIN.labels + 1) % 3)  # type: ignore[operator]
    banks.of_training(network, other)
    assert len(list((cache / "banks").glob("*.npz"))) == 2  # other labels are other training data
    x = images(30, seed=2)
    x[7, 0, 1, 1] = (x[7, 0, 1, 1] + 0.25) % 1
    banks.of_training(network, ArraySource(x, other.labels))
    assert len(list((cache / "banks").glob("*.npz"))) == 3  # and so is one other pixel


def test_the_first_batch_of_adaptive_is_that_of_prior_only() -> None:
    both = compare(target(), exact_pool().without_labels(), ["adaptive", "prior-only"], 12, train=TRAIN)
    assert np.array_equal(both["adaptive"].order, both["prior-only"].order)
    content = both["prior-only"].to_dict()
    assert content["prior"]["training_images"] == 30
    assert sum(content["prior"]["shares"].values()) == pytest.approx(1)
    assert any("by its looks" in note for note in both["adaptive"].notes)
    assert any("only 30 training images" in note for note in both["adaptive"].notes)
    assert content["prior"]["rough"]


def test_adaptive_says_what_each_round_promised_and_held() -> None:
    content = select(target(), exact_pool(), "adaptive:round=10", 30, train=TRAIN).to_dict()
    assert [r["labels"] for r in content["rounds"]] == [10, 20, 30]
    assert all(0 <= r["expected"] <= 1 and r["deepgini"] >= 0 for r in content["rounds"])


def test_without_training_data_the_pool_itself_serves() -> None:
    selection = select(target(), exact_pool(), "adaptive", 10)
    assert selection.details["prior"] == {"from": "self"}
    assert any("surest half" in note for note in selection.notes)
    plain = select(target(), exact_pool(), "adaptive:prior=none", 10)
    assert plain.details["prior"] == {"from": "none"}
    unlabelled = ArraySource(images(30, seed=2))
    assert select(target(), exact_pool(), "adaptive", 10, train=unlabelled).details["prior"] == {"from": "self"}


def test_inputs_that_are_no_images_have_no_prior() -> None:
    vectors = ArraySource(np.arange(60, dtype=np.float32).reshape(10, 6) / 64, np.arange(10) % 3)
    assert select(centred(), vectors, "adaptive", 3, train=vectors).details["prior"] == {"from": "none"}
    with refused("unsuitable", "train"):
        select(centred(), vectors, "prior-only", 3, train=vectors)


@pytest.mark.parametrize(("train", "refusal"), [(None, ("missing", "train")), (ArraySource(images(5)), ("no-labels", "train"))])
def test_what_prior_only_needs(train: ArraySource | None, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(), exact_pool(), "prior-only", 5, train=train)


@pytest.mark.parametrize("options", ["ridge=0", "prior=maybe"])
def test_bad_settings(options: str) -> None:
    with pytest.raises(BadInput):
        select(target(), exact_pool(), f"adaptive:{options}", 5)


def test_the_zoo_knows_its_training_data() -> None:
    network = load("zoo:mnist-lenet1")
    known = known_training(network)
    if known is None:
        pytest.skip("the embedded MNIST training images were removed")
    assert known.spec == "zoo:mnist/train"
    assert known_training(Target(network.module, shape=(1, 28, 28))) is None


def test_the_former_name_still_works() -> None:
    assert registry.find("selector", "prior-only").name == "prior-only"
    assert registry.build("selector", "foreseen:ridge=10") == PriorOnly(ridge=10)
