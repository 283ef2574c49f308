"""What is printed is text: names that would move the cursor, change colours or turn the direction of writing are spelled out."""

from __future__ import annotations

import io
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.cli import app, show
from neurotest.errors import BadInput, Remark, visible

EVIL = "cat\x1b[2J\x1b]0;title\x07\r\u202egod\u2066\x9b31m\udc80"
SPELLED = r"cat\x1b[2J\x1b]0;title\x07\r\u202egod\u2066\x9b31m\udc80"


def test_by_hand() -> None:
    assert visible(EVIL) == SPELLED
    assert visible("Katze, κατ, 猫, قطة, 🐈‍⬛, a b") == "Katze, κατ, 猫, قطة, 🐈‍⬛, a b"
    assert visible("one\ntwo\t3") == r"one\ntwo\t3"
    assert visible("one\ntwo\t3", lines=True) == "one\ntwo\t3"


@given(st.text())
def test_nothing_that_a_terminal_obeys_remains(text: str) -> None:
    shown = visible(text)
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in shown)
    assert visible(shown) == shown
    shown.encode()  # no lone surrogates


def test_tables_and_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(EVIL, [EVIL, "n"], [[EVIL, "1"], ["two\nlines", "2"]])
    show.remark(EVIL)
    show.families([{"true": EVIL, "predicted": "dog", "faults": 3}], 1)
    out, err = capsys.readouterr()
    assert out.count(SPELLED) == 4
    assert r"two\nlines" in out
    assert err == f"neurotest: {SPELLED}\n"
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize(
    ("cells", "left"),
    [
        (["0.5", "", "12.3 %", "1.2 .. 3.4", "1,204", "-0.1", "1e-05", "5 of 9", "12 s", "x3.1 "], None),
        (["1", "unreadable: no run"], True),
        (["17", "1.5 MB"], False),
        (["3 seeds were wrong"], True),
        (["2026-11-17 00:21"], True),
        (["0.3 .. 0.5", "12.5 %"], False),
    ],
)
def test_words_stand_left_and_numbers_right(cells: list[str], left: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    if left is None:
        assert [bool(show.NUMBER.match(cell)) for cell in cells] == [bool(cell) and cell[0] != "x" for cell in cells]
        return
    show.table("", ["name", "a rather wide heading of a column"], [[str(n), cell] for n, cell in enumerate(cells)])
    for cell in cells:
        line = next(line for line in capsys.readouterr().out.splitlines() if cell in line) if cell == cells[0] else ""
        if line:
            assert (line.index(cell) < 10) is left


def test_progress_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with show.ticking(EVIL) as ticker:
        ticker.last_line = float("-inf")
        ticker(1, 2)
    assert SPELLED in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "left"), [(None, "about 10 s left"), (300.0, "about 210 s left")])
def test_what_is_left_goes_by_the_clock_where_that_ends_it(
    seconds: float | None, left: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("neurotest.cli.show.time.monotonic", lambda: now[0])
    with show.ticking("checking", seconds=seconds) as ticker:
        ticker(0, 10)
        now[0] += 90  # nine of ten were quick, the tenth goes on until the time is over
        ticker(9, 10)
    assert f"checking: 9 of 10, {left}" in capsys.readouterr().err


def test_everything_printed_by_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what goes by print, as an error, as a remark or as JSON; the streams are as before afterwards."""

    def command(**settings: object) -> None:
        print(f"taken for {EVIL}")
        warnings.warn(f"1 file skipped: {EVIL}", Remark, stacklevel=1)
        raise BadInput(f"{EVIL}\nneurotest: all is well")

    monkeypatch.setattr(app, "application", lambda words: command)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["neurotest", "x", "--json"])
    before = sys.stdout, sys.stderr
    with warnings.catch_warnings(), pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 2
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"taken for {SPELLED}"
    assert err.splitlines() == [f"neurotest: 1 file skipped: {SPELLED}", rf"neurotest: {SPELLED}\nneurotest: all is well"]
    assert out.isascii()  # JSON spells them by itself


def test_a_plain_stream_is_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with show.plain_output():
        print("a\x1b[0m", end="")
        sys.stdout.flush()
        assert not sys.stdout.isatty()
        assert show.console().file is stream
    assert stream.getvalue() == r"a\x1b[0m"
    assert sys.stdout is stream
