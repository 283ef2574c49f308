"""Processes and their limits."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from neurotest.scale import start

pytestmark = pytest.mark.plain
LIMITED = """
import resource
from neurotest.scale.start import limit_process
resource.setrlimit(resource.RLIMIT_CPU, (2000, 3000))
limit_process(seconds=%d, memory=1 << 40)
print(*resource.getrlimit(resource.RLIMIT_CPU), *resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize(("seconds", "soft"), [(50, range(50, 60)), (10**6, range(2000, 2001))])
def test_limits_are_lowered_and_never_raised(seconds: int, soft: range) -> None:
    """An ordinary user may not raise what `ulimit -t` has set."""
    pytest.importorskip("resource", reason="there are no such limits on this system")
    source = str(Path(start.__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r})\n{LIMITED % seconds}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    processor, hard, core, _ = map(int, done.stdout.split())
    assert processor in soft
    assert (hard, core) == (3000, 0)


def test_two_threads_come_back_to_the_folder_they_were_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with start.current_folder("/"):
            inside.set()
            leave.wait()

    def visit() -> None:
        with start.current_folder("/"):
            pass

    threads = [threading.Thread(target=stay), threading.Thread(target=visit)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join()
    assert Path.cwd() == tmp_path
