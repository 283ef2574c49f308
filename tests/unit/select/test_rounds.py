"""Adaptive selection in rounds: labels come by file, a crash between two rounds loses nothing."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from neurotest import rng, zoo
from neurotest.data.source import ArraySource
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.mutate.nss import nss_pool
from neurotest.runs.store import Run
from neurotest.select import exchange, select
from neurotest.select.adaptive import labelling, loop, rounds, stored

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def pool() -> ArraySource:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("the weights of mnist-lenet1 are not here")
    try:
        return nss_pool(source=data("zoo:mnist/test[:300]"), seed=5)  # type: ignore[return-value]
    except BadInput:
        pytest.skip("the embedded MNIST images were removed")


@pytest.fixture
def begun(pool: ArraySource, tmp_path: Path) -> Path:
    x = pool.read(np.arange(300))
    np.savez(tmp_path / "pool.npz", x=x)
    select("zoo:mnist-lenet1", f"npz:{tmp_path / 'pool.npz'}#x", "adaptive", 15, out=tmp_path / "run", files=2)
    return tmp_path / "run"


def write(path: Path, positions: list[int], labels: list[int], contents: list[str] | None = None) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["position", "content", "label"] if contents else ["position", "label"])
        for i, (p, label) in enumerate(zip(positions, labels, strict=True)):
            writer.writerow([p, contents[i], label] if contents else [p, label])
    return path


def test_rounds_by_file_equal_the_loop_in_python(begun: Path, pool: ArraySource, tmp_path: Path) -> None:
    assert pool.labels is not None
    learner = loop("zoo:mnist-lenet1", ArraySource(pool.read(np.arange(300))))
    expected = learner.propose(15)
    proposal = rounds.resume(begun)
    for number in range(2, 5):
        assert proposal["indices"] == expected.tolist()
        file = write(tmp_path / "labels.csv", proposal["indices"], pool.labels[expected].tolist(), proposal["contents"])
        assert labelling.add_labels(begun, file)["added"] == 15
        learner.tell(expected, pool.labels[expected])
        expected = learner.propose(15)
        proposal = rounds.resume(begun)
        assert (proposal["round"], proposal["again"]) == (number, False)
    assert proposal["labels"] == 45
    assert proposal["remaining_interval"][0] <= proposal["remaining"] <= proposal["remaining_interval"][1]


def test_asked_again_before_any_label_it_says_the_same(begun: Path) -> None:
    first, again = rounds.resume(begun), rounds.resume(begun)
    assert first["indices"] == again["indices"]
    assert again["again"]
    assert again["round"] == 1


def test_a_crash_between_two_rounds_loses_nothing(
    begun: Path, pool: ArraySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool.labels is not None
    first = rounds.resume(begun)["indices"]
    labelling.add_labels(begun, write(tmp_path / "a.csv", first, pool.labels[first].tolist()))

    def die(*_: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "_images", die)
        with pytest.raises(RuntimeError):
            rounds.resume(begun)
    after = rounds.resume(begun)
    assert after["labels"] == 15
    assert after["round"] == 2
    assert not set(after["indices"]) & set(first)


def test_what_is_refused_adds_nothing(begun: Path, pool: ArraySource, tmp_path: Path) -> None:
    first = rounds.resume(begun)["indices"]
    never = next(p for p in range(300) if p not in first)
    for positions, labels, contents, word in (
        ([first[0], 999], [1, 1], None, "position 999 is unknown, the pool has 300 inputs"),
        ([first[0], never], [1, 1], None, "never proposed"),
        ([first[0]], [1], ["f" * 16], "of another run"),
        ([first[0], first[0]], [1, 2], None, "keep one"),
        ([first[0]], [10], None, "classes"),
    ):
        with pytest.raises(BadInput, match=word):
            labelling.add_labels(begun, write(tmp_path / "bad.csv", positions, labels, contents))
    with Run.open(begun) as run:
        assert run.labels() == []


def test_a_label_that_contradicts_an_earlier_one(begun: Path, tmp_path: Path) -> None:
    first = rounds.resume(begun)["indices"]
    labelling.add_labels(begun, write(tmp_path / "a.csv", first[:2], [1, 2]))
    assert labelling.add_labels(begun, write(tmp_path / "a.csv", first[:3], [1, 2, 3]))["added"] == 1
    with pytest.raises(BadInput, match="Nothing was added"):
        labelling.add_labels(begun, write(tmp_path / "b.csv", first[:4], [1, 5, 3, 3]))


def test_the_stop_rule(pool: ArraySource, tmp_path: Path) -> None:
    assert pool.labels is not None
    blind = ArraySource(pool.read(np.arange(300)))
    select("zoo:mnist-lenet1", blind, "adaptive:stop=0.9,prior=none", 15, out=tmp_path / "run")
    first = rounds.resume(tmp_path / "run")["indices"]
    labelling.add_labels(tmp_path / "run", write(tmp_path / "a.csv", first, pool.labels[first].tolist()))
    proposal = rounds.resume(tmp_path / "run")
    assert proposal["stop"]
    assert proposal["indices"] == []


def test_an_audit_survives_the_run(pool: ArraySource, tmp_path: Path) -> None:
    """Random draws are part of every batch, and what they say about the faults left is the same after reading the run back."""
    assert pool.labels is not None
    np.savez(tmp_path / "pool.npz", x=pool.read(np.arange(300)))
    select("zoo:mnist-lenet1", f"npz:{tmp_path / 'pool.npz'}#x", "adaptive:audit=0.4", 15, out=tmp_path / "run", files=0)
    learner = loop("zoo:mnist-lenet1", ArraySource(pool.read(np.arange(300))), audit=0.4)
    expected = learner.propose(15)
    for number in range(2):
        proposal = rounds.resume(tmp_path / "run", files=0)
        assert proposal["indices"] == expected.tolist()
        labelling.add_labels(tmp_path / "run", write(tmp_path / "l.csv", proposal["indices"], pool.labels[expected].tolist()))
        learner.tell(expected, pool.labels[expected])
        expected = learner.propose(15)
        rest = rounds.resume(tmp_path / "run", files=0)
        assert rest["remaining_by"] == f"{6 * (number + 1)} random labels"
        assert [rest["remaining"], *rest["remaining_interval"]] == pytest.approx(list(learner.remaining()[:3]))


def test_other_runs_and_damage(begun: Path, tmp_path: Path) -> None:
    x = rng.stream("test.rounds", 0).integers(0, 256, (20, 1, 28, 28), dtype=np.uint8)
    select("zoo:mnist-lenet1", ArraySource(x), "deepgini", 5, out=tmp_path / "other")
    with pytest.raises(BadInput, match="no adaptive selection"):
        rounds.resume(tmp_path / "other")
    (begun / exchange.FACTS).write_bytes(b"nothing")
    with pytest.raises(BadInput, match="damaged"):
        rounds.resume(begun)


class Death(BaseException):
    """The process is gone."""


def labelled_once(begun: Path, pool: ArraySource, tmp_path: Path) -> list[int]:
    assert pool.labels is not None
    first: list[int] = rounds.resume(begun)["indices"]
    labelling.add_labels(begun, write(tmp_path / "labels.csv", first, pool.labels[first].tolist()))
    return first


def test_whoever_dies_between_a_rounds_rows_and_its_pictures_gets_both(
    begun: Path, pool: ArraySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled_once(begun, pool, tmp_path)

    def death(*arguments: object, **options: object) -> None:
        raise Death

    for name in ("save_inputs", "add_ranking", "export"):
        with monkeypatch.context() as patch:
            patch.setattr(Run, name, death)
            with pytest.raises(Death):
                rounds.resume(begun)
        with Run.open(begun) as run:
            assert len(exchange.rounds_of(run)) == 1
    proposal = rounds.resume(begun)
    assert (proposal["round"], proposal["again"]) == (2, False)
    with Run.open(begun) as run:
        assert set(proposal["indices"]) <= {row.position for row in run.files("picked")}


def test_pictures_that_an_earlier_version_lost_are_made_up_for(begun: Path, pool: ArraySource, tmp_path: Path) -> None:
    labelled_once(begun, pool, tmp_path)
    second = rounds.resume(begun)["indices"]
    with Run.open(begun, write=True) as run:
        run.change("DELETE FROM file WHERE position = ?", [(p,) for p in second])
    again = rounds.resume(begun)
    assert (again["round"], again["again"]) == (2, True)
    with Run.open(begun) as run:
        assert set(second) <= {row.position for row in run.files("picked")}


@pytest.mark.parametrize("damage", ["empty", "cut", "huge header", "bzip2", "link", "pipe", "gone", "another"])
def test_a_damaged_scan_is_one_sentence(begun: Path, tmp_path: Path, damage: str) -> None:
    import os
    import shutil
    import zipfile

    file = begun / "adaptive.npz"
    content = file.read_bytes()
    file.unlink()
    if damage == "empty":
        file.touch()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage in ("huge header", "bzip2"):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 8000000), }\n"
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2 if damage == "bzip2" else zipfile.ZIP_DEFLATED) as archive:
            for name in ("features.npy", "logits.npy"):
                archive.writestr(name, array + bytes(1 << 20))
    elif damage == "link":
        (tmp_path / "mine.npz").write_bytes(content)
        file.symlink_to(tmp_path / "mine.npz")
    elif damage == "pipe":
        os.mkfifo(file)
    elif damage == "another":
        np.savez(file, features=np.zeros((3, 2), np.float32), logits=np.zeros((3, 10), np.float32))
    with pytest.raises(BadInput, match=r"adaptive\.npz"):
        rounds.resume(begun)
    shutil.rmtree(begun)


def test_a_run_of_a_version_without_a_prior_goes_on_as_it_was(pool: ArraySource, tmp_path: Path) -> None:
    assert pool.labels is not None
    blind = ArraySource(pool.read(np.arange(300)))
    select("zoo:mnist-lenet1", blind, "adaptive:prior=none", 15, out=tmp_path / "run", files=0)
    with Run.open(tmp_path / "run", write=True) as run:
        run[stored.SETTINGS] = {name: value for name, value in run[stored.SETTINGS].items() if name != "prior"}
        run[exchange.ROUNDS] = [{k: v for k, v in r.items() if k != "expected_faults"} for r in run[exchange.ROUNDS]]
    learner = loop("zoo:mnist-lenet1", blind, prior=None)
    first = learner.propose(15)
    assert np.array_equal(first, np.argsort(-learner.gini.numpy(), kind="stable")[:15])
    labelling.add_labels(tmp_path / "run", write(tmp_path / "l.csv", first.tolist(), pool.labels[first].tolist()))
    learner.tell(first, pool.labels[first])
    proposal = rounds.resume(tmp_path / "run", files=0)
    assert proposal["indices"] == learner.propose(15).tolist()
    assert proposal["last_round"]["expected"] is None
