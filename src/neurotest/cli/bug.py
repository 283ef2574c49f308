"""What is left behind when neurotest itself fails: a log with the trace, so that the screen shows one sentence."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

from neurotest import __version__, files
from neurotest.errors import BadInput

LOGS_KEPT = 20  # logs of earlier failures


def bug_report(error: BaseException) -> str:
    """Write the trace to a log and say where it is; where no log can be written, the trace goes to standard error."""
    text = _text(error)
    for folder in (_logs(), Path(tempfile.gettempdir())):
        if folder is None:
            continue
        log = folder / f"neurotest-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        with suppress(BadInput, OSError):
            files.write_bytes(log, text.encode(errors="backslashreplace"))
            _forget(folder)
            return f"please report it with the file {log}"
    print(text, file=sys.stderr)
    return "please report it with the lines above."


def _logs() -> Path | None:
    try:
        return files.cache_dir() / "errors"
    except RuntimeError:  # a user without a home
        return None


def _text(error: BaseException) -> str:
    lines = (
        f"neurotest {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"torch {getattr(sys.modules.get('torch'), '__version__', 'not imported')}",
        f"command: {sys.argv!r}",
        f"folder: {os.getcwd()}",
        "",
        "".join(traceback.format_exception(error)),
    )
    return "\n".join(lines)


def _forget(folder: Path) -> None:
    for old in sorted(folder.glob("neurotest-error-*.log"))[:-LOGS_KEPT]:
        old.unlink(missing_ok=True)
