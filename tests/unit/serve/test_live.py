"""What the live page says of a run, without a server."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.unit.serve.subjects import campaign

from neurotest.runs.store import Run
from neurotest.serve.live import Live


def test_the_command_that_goes_on_quotes_the_folder(tmp_path: Path) -> None:
    path = campaign(tmp_path).rename(tmp_path / "a run; touch planted")
    with Run.open(path, write=True) as run:
        run.reopen()
    steps = Live(path).state()["steps"]
    assert [shlex.split(step["command"]) for step in steps] == [["neurotest", "fuzz", "--resume", str(path)]]
