"""Runs several commands one after the other in one process, each with its own environment and clock: `python -P surroundings.py`.

Standard input holds a JSON list of {"words", "folder", "env", "jump"}; standard output gets [[exit code, output, errors], ...].
jump: seconds by which the clock jumps after its third use.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock


def jumping(seconds: float) -> Any:
    real, uses = time.time, itertools.count()
    return lambda: real() + (seconds if next(uses) >= 3 else 0.0)


def run(words: list[str], folder: str, env: dict[str, str], jump: float) -> tuple[int, str, str]:
    from neurotest.cli.app import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    os.chdir(folder)
    with mock.patch.dict(os.environ, env), mock.patch.object(time, "time", jumping(jump) if jump else time.time):
        time.tzset()
        sys.argv, code = ["neurotest", *words], 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(errors="replace"))  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump([run(one["words"], one["folder"], one.get("env", {}), one.get("jump", 0.0)) for one in given], sys.stdout)
