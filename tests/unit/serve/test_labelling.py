"""Labelling without a browser: what comes next, who has it, what is stored, what is taken back; the selector is the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.serve.subjects import HOLDER, OTHER, POOL, adaptive_run
from tests.waiting import until

from neurotest.runs import schema
from neurotest.runs.store import Run
from neurotest.select.adaptive.rounds import resume, status
from neurotest.select.exchange import rounds_of
from neurotest.serve.chooser import Chooser, Owner, Request, Selector
from neurotest.serve.labelling import LEASE, Labelling
from neurotest.serve.models import Taken


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


class Desk:
    """A labelling with its selector in this process: `choose` lets it answer what it was asked."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.clock, self.requests, self.chores = path, Clock(), [], []
        self.labelling = Labelling(path, clock=self.clock, **settings)
        self.selector = Selector(path)
        self.labelling.start(self.requests.append, self.chores.append)

    def choose(self) -> None:
        while self.requests:
            self.labelling.take(self.selector.choose(self.requests.pop(0)))

    def next(self, holder: str = HOLDER) -> int:
        answer = self.labelling.next(holder)
        assert answer["state"] == "show", answer
        return int(answer["input"]["position"])

    def label(self, label: int | None = 0, holder: str = HOLDER, **about: Any) -> int:
        position = self.next(holder)
        self.labelling.label(holder, position, label, **about)
        return position


@pytest.fixture
def desk(begun: Path) -> Any:
    made = Desk(begun, size=5)
    yield made
    made.labelling.run.close()


def test_the_selection_s_own_order_comes_first(desk: Desk) -> None:
    first = desk.labelling.rounds[0]["positions"]
    assert [desk.label() for _ in range(4)] == first[:4]


def test_a_batch_is_followed_by_what_the_selector_chose(desk: Desk) -> None:
    for _ in range(5):
        desk.label(1)
    desk.choose()
    expected = desk.labelling.choice.batch
    assert [desk.label(1) for _ in range(5)] == expected
    assert desk.labelling.rounds[1]["positions"] == expected
    assert len(desk.labelling.rounds[1]["said"][0]) in (2, 5)


def test_people_faster_than_the_selector_get_the_best_by_its_last_word(desk: Desk) -> None:
    desk.choose()
    labelled = [desk.label() for _ in range(30)]
    assert len(set(labelled)) == 30
    chances = desk.labelling.choice.chances
    rest = sorted((p for p in range(POOL) if p not in labelled[:10]), key=lambda p: (-chances[p], p))
    assert labelled[11:15] == rest[:4] or set(labelled[11:15]) <= set(rest[:12])


def test_without_a_word_of_the_selector_one_waits(desk: Desk) -> None:
    for _ in range(6):
        desk.label()
    assert desk.labelling.next(HOLDER) == {"state": "choosing", "input": None}
    desk.choose()
    desk.next()


def test_two_holders_never_have_the_same_input(desk: Desk) -> None:
    one, other = desk.next(HOLDER), desk.next(OTHER)
    assert one != other
    assert desk.next(HOLDER) == one  # a reload shows it again
    with refused("busy", "position", kind=Taken):
        desk.labelling.label(OTHER, one, 1)
    desk.labelling.label(HOLDER, one, 1)
    with refused("exists", "label", kind=Taken):
        desk.labelling.label(HOLDER, one, 2)


def test_a_lease_that_is_not_renewed_ends(desk: Desk) -> None:
    position = desk.next(HOLDER)
    desk.clock.now += LEASE - 1
    assert desk.labelling.renew(HOLDER) == {"held": [position]}
    desk.clock.now += LEASE - 1
    assert desk.next(OTHER) != position
    desk.clock.now += 2 * LEASE
    third = "00000000aaaaaaaa"
    assert desk.next(third) == position
    with refused("busy", "position", kind=Taken):
        desk.labelling.label(HOLDER, position, 1)


def test_a_clock_that_is_put_back_keeps_nothing_from_others(desk: Desk) -> None:
    """Neither in this process nor in the next, which reads the leases from the run."""
    position = desk.next(HOLDER)
    desk.clock.now -= 365 * 86_400
    assert desk.next(OTHER) == position
    desk.labelling.run.lease([position], HOLDER, 1e300)
    desk.labelling.run.close()
    desk.labelling = Labelling(desk.path, clock=desk.clock, size=5)
    desk.labelling.pending = [position]
    assert desk.labelling._leased() == []


def test_leases_and_labels_are_there_after_a_restart(begun: Path) -> None:
    desk = Desk(begun, size=5)
    done = [desk.label(2, by="ann") for _ in range(3)]
    before = desk.next()
    desk.labelling.run.close()
    again = Desk(begun, size=5)
    assert sorted(again.labelling.labels) == sorted(done)
    assert again.next() == before
    assert again.next(OTHER) != before
    again.labelling.close()
    assert status(begun)["labels"] == 3


def test_not_valid_and_cannot_tell_are_no_faults_and_are_told_apart(desk: Desk) -> None:
    invalid, unclear = desk.label(None, valid=False), desk.label(None)
    progress = desk.labelling.progress()
    assert (progress["labels"], progress["judged"], progress["invalid"], progress["unclear"]) == (2, 0, 1, 1)
    rows = {row.position: row for row in desk.labelling.run.labels()}
    assert (rows[invalid].valid, rows[unclear].valid) == (0, 1)
    with refused("conflict", "label"):
        desk.labelling.label(HOLDER, desk.next(), 1, valid=False)


def test_undo_takes_back_the_last_label_of_this_tab_only(desk: Desk) -> None:
    mine = desk.label(1)
    theirs = desk.label(2, OTHER)
    assert desk.labelling.undo(HOLDER)["undone"] == [mine]
    assert sorted(desk.labelling.labels) == [theirs]
    assert desk.next() == mine
    with refused("empty", "labels", kind=Taken):
        desk.labelling.undo(HOLDER)
    history = desk.labelling.run.label_history()
    assert [row.undoes for row in history] == [None, None, 1]


def test_what_is_skipped_is_shown_to_others_first(desk: Desk) -> None:
    position = desk.next()
    desk.labelling.skip(HOLDER, position)
    assert desk.next() != position
    assert desk.next(OTHER) == position


def test_faults_are_counted_against_the_prediction(desk: Desk) -> None:
    right = desk.next()
    stored = desk.labelling.label(HOLDER, right, int(desk.labelling.predicted[right]))
    wrong = desk.next()
    other = desk.labelling.label(HOLDER, wrong, (int(desk.labelling.predicted[wrong]) + 1) % 4)
    assert (stored["fault"], other["fault"]) == (False, True)
    assert desk.labelling.progress()["fault_at"] == [2]
    assert desk.labelling.guess(right)["predicted"] == int(desk.labelling.predicted[right])


@pytest.mark.parametrize(
    ("position", "label", "refusal"), [(10**6, 0, ("conflict", "position")), (None, 4, ("out-of-range", "label"))]
)
def test_bad_answers_are_sentences(desk: Desk, position: int | None, label: int, refusal: tuple[str, str]) -> None:
    shown = desk.next()
    with refused(*refusal):
        desk.labelling.label(HOLDER, shown if position is None else position, label)
    assert not desk.labelling.labels


def test_a_grid_is_of_one_class_and_wrong_ones_are_named_one_by_one(desk: Desk) -> None:
    desk.choose()
    grid = desk.labelling.grid(HOLDER)
    positions = [one["position"] for one in grid["inputs"]]
    assert 1 <= len(positions) <= 30
    assert set(desk.labelling.predicted[positions]) == {grid["predicted"]}
    chances = desk.labelling.chances[positions]
    assert np.all(np.diff(chances) <= 0)
    wrong, right = positions[:2], positions[2:]
    assert desk.labelling.answer_grid(HOLDER, right, wrong) == {"stored": len(right), "to_name": 2, "labels": len(right)}
    assert [desk.label(1), desk.label(1)] == wrong
    assert desk.labelling.undo(HOLDER)["undone"] == wrong[1:]
    assert desk.labelling.run.last_labels(HOLDER)[0].position == wrong[0]
    assert not set(positions) & {one["position"] for one in desk.labelling.grid(OTHER)["inputs"]}


def test_the_grid_takes_the_class_that_promises_most(desk: Desk) -> None:
    desk.choose()
    labelling = desk.labelling
    promise = {}
    for number in range(4):
        chances = [float(labelling.chances[p]) for p in range(POOL) if labelling.predicted[p] == number]
        promise[number] = sum(sorted(chances, reverse=True)[:30])
    assert labelling.grid(HOLDER)["predicted"] == max(promise, key=lambda number: promise[number])
    assert labelling.grid(OTHER, 2)["predicted"] == 2


def test_a_grid_without_an_answer_is_given_again(desk: Desk) -> None:
    """Also after a restart, and to each tab its own."""
    desk.choose()

    def shown(labelling: Labelling, holder: str, predicted: int | None = None) -> list[int]:
        return [one["position"] for one in labelling.grid(holder, predicted)["inputs"]]

    common, rarer = np.argsort(-np.bincount(desk.labelling.predicted, minlength=4)).tolist()[:2]
    mine, other = shown(desk.labelling, HOLDER, common), shown(desk.labelling, OTHER, rarer)
    assert mine
    assert other
    for _ in range(3):
        assert shown(desk.labelling, HOLDER, common) == mine
        assert shown(desk.labelling, OTHER, rarer) == other
    assert len(desk.labelling.rounds) == 3
    assert not set(shown(desk.labelling, OTHER, common)) & set(mine)  # it is before somebody
    rounds = len(desk.labelling.rounds)
    desk.labelling.run.close()
    desk.labelling = Labelling(desk.path, clock=desk.clock, size=5)
    assert shown(desk.labelling, HOLDER, common) == mine
    desk.labelling.answer_grid(HOLDER, mine[:1], [])
    assert mine[0] not in shown(desk.labelling, HOLDER, common)
    assert len(desk.labelling.rounds) <= rounds + 1


def test_a_round_costs_what_the_first_one_did(desk: Desk) -> None:
    """Counted in the text of the statements, not by the clock: earlier rounds are not written again."""
    desk.choose()
    labelling, sizes, statements = desk.labelling, [], []
    labelling.run._db.set_trace_callback(statements.append)
    for number in range(100):
        labelling._add_round(f"trial {number:03d}", [0, 1, 2], {})
        sizes.append(sum(map(len, statements)))
        statements.clear()
    assert max(sizes) < 1.1 * sizes[0]
    assert len(labelling.run.rounds()) == 100


def test_a_run_of_a_version_that_rewrote_its_rounds_goes_on(begun: Path) -> None:
    """Its rounds are read as they are stored; new ones are rows after them."""
    every = schema.MIGRATIONS
    before = next(number for number, statements in enumerate(every) if any("TABLE round" in one for one in statements))
    first = rounds_in(begun)
    with Run.open(begun, write=True) as run:
        run["adaptive rounds"] = [*first, {**first[0], "ranking": "adaptive round 2"}]
        run.add_ranking("adaptive round 2", first[0]["positions"], None, len(first[0]["positions"]))
        run.change("DROP TABLE round", [()])
        run.change(f"PRAGMA user_version={before}", [()])
    assert [one["ranking"] for one in rounds_in(begun)] == ["adaptive", "adaptive round 2"]
    desk = Desk(begun, size=5)
    desk.choose()
    desk.labelling.grid(HOLDER)
    desk.labelling.run.close()
    assert [one["ranking"] for one in rounds_in(begun)] == ["adaptive", "adaptive round 2", "adaptive round 3, grid"]
    assert status(begun)["round"] == 3


def rounds_in(path: Path) -> list[Any]:
    with Run.open(path) as run:
        return rounds_of(run)


def test_with_two_classes_the_wrong_ones_are_the_other(tmp_path: Path) -> None:
    desk = Desk(adaptive_run(tmp_path, classes=2), size=5)
    desk.choose()
    grid = desk.labelling.grid(HOLDER)
    positions = [one["position"] for one in grid["inputs"]]
    assert desk.labelling.answer_grid(HOLDER, positions[1:], positions[:1])["stored"] == len(positions)
    assert desk.labelling.labels[positions[0]].label == 1 - grid["predicted"]
    desk.labelling.undo(HOLDER)
    assert not desk.labelling.labels
    desk.labelling.close()


def test_the_run_goes_on_by_the_command_line(desk: Desk) -> None:
    """What the page wrote is an adaptive selection like any other."""
    for _ in range(7):
        desk.label(1)
        desk.choose()
    expected = desk.labelling.progress()
    desk.labelling.close()
    now = status(desk.path)
    assert (now["labels"], now["faults"]) == (7, expected["faults"])
    assert now["remaining"] == pytest.approx(expected["standing"]["remaining"]["faults"])
    proposal = resume(desk.path, 4)
    assert not set(proposal["indices"]) & set(desk.labelling.labels)


def test_pictures_are_kept_in_the_run_when_nobody_waits(desk: Desk) -> None:
    desk.choose()
    for _ in range(6):
        desk.label()
    last = desk.labelling.rounds[-1]["positions"]
    for chore in desk.chores:
        chore()
    stored = {row.position for row in desk.labelling.run.files("picked")}
    assert set(last) <= stored
    shown = desk.labelling.pictures.shown(last[0])
    assert (shown.kind, shown.content[:4]) == ("image/png", b"\x89PNG")


def test_a_pool_that_changed_is_refused(tmp_path: Path) -> None:
    begun = adaptive_run(tmp_path, fresh=True)
    np.savez(begun.parent / "pool.npz", x=np.zeros((POOL, 1, 8, 8), dtype=np.uint8))
    labelling = Labelling(begun)
    with refused("changed", "pool"):
        labelling.pictures.read(0)
    labelling.close()


def test_a_run_from_elsewhere_opens_no_pool_it_names(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(begun.parent / "another-cache"))
    labelling = Labelling(begun)
    assert labelling.pictures.source is None
    assert "untrusted run" in labelling.pictures.problem
    stored = sorted(labelling.pictures.files)
    assert labelling.next(HOLDER)["input"]["position"] in stored
    labelling.close()
    named = Labelling(begun, pool=f"npz:{begun.parent / 'pool.npz'}#x")
    assert named.pictures.source is not None
    named.close()


def test_other_runs_and_a_second_server_are_refused(begun: Path, tmp_path: Path) -> None:
    labelling = Labelling(begun)
    with refused("busy"):
        Labelling(begun)
    labelling.close()
    with Run.create(tmp_path / "other", "cover", {}):
        pass
    with refused("wrong-run"):
        Labelling(tmp_path / "other")
    with Run.open(tmp_path / "other", write=True):  # its lock was let go
        pass


def test_the_selector_in_its_own_process_says_what_it_says_here(begun: Path) -> None:
    owner = Owner()
    answers: list[Any] = []
    chooser = Chooser(begun, lambda answer: owner.ask(lambda: answers.append(answer)))
    try:
        chooser.ask(Request(5, (), None))
        expected = Selector(begun).choose(Request(5, (), None))
        until(lambda: owner.ask(lambda: len(answers)), "what the selector chose")
        assert answers[0].batch == expected.batch
        np.testing.assert_allclose(answers[0].chances, expected.chances, rtol=1e-5)
        assert answers[0].standing.keys() == expected.standing.keys()
    finally:
        chooser.close()
        owner.end(lambda: None)


def test_audits_draw_from_what_nobody_has_before_them(tmp_path: Path) -> None:
    from tests.unit.serve.subjects import write_project

    import neurotest
    from neurotest.select import select

    write_project(tmp_path)
    target = neurotest.load(f"py:{tmp_path / 'model.py'}:build", size="1x8x8")
    select(target, f"npz:{tmp_path / 'pool.npz'}#x", "adaptive:audit=0.5", 6, out=tmp_path / "run")
    desk = Desk(tmp_path / "run", size=6)
    taken = set(desk.requests[0].taken)
    desk.choose()
    choice = desk.labelling.choice
    assert not taken & set(choice.batch)
    assert set(choice.draw["random"]) <= set(choice.batch)
    for _ in range(7):
        desk.label()
    assert desk.labelling.rounds[1]["random"] == choice.draw["random"]
    desk.labelling.close()


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["label", "label", "skip", "undo", "choose", "wait", "invalid"])), max_size=40
    )
)
def test_whatever_two_people_do_every_input_is_labelled_once(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    desk = Desk(adaptive_run(tmp_path_factory.mktemp("steps")), size=4)
    labelled: dict[int, str] = {}
    order: dict[str, list[int]] = {HOLDER: [], OTHER: []}
    for first, step in steps:
        holder = HOLDER if first else OTHER
        if step == "choose":
            desk.choose()
        elif step == "wait":
            desk.clock.now += LEASE / 3
        elif step == "undo" and order[holder]:
            (undone,) = desk.labelling.undo(holder)["undone"]
            assert undone == order[holder].pop()
            del labelled[undone]
        elif step in ("label", "skip", "invalid") and (shown := desk.labelling.next(holder))["input"]:
            position = shown["input"]["position"]
            assert position not in labelled
            if step == "skip":
                desk.labelling.skip(holder, position)
            else:
                desk.labelling.label(holder, position, None if step == "invalid" else 1, valid=step != "invalid")
                labelled[position] = holder
                order[holder].append(position)
    assert sorted(desk.labelling.labels) == sorted(labelled)
    assert {row.position: row.session for row in desk.labelling.run.labels()} == labelled
    desk.labelling.close()
    assert status(desk.path)["labels"] == len(labelled)
