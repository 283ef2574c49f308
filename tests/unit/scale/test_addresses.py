"""Whom a Ray listens to, and whom it is asked of."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.refusals import refused

from neurotest.scale import cluster

pytestmark = pytest.mark.plain

LISTENING = """
import os
from contextlib import suppress
from pathlib import Path
from neurotest.scale.cluster import Cluster

def family():
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return ours

def sockets(process):
    links = []
    with suppress(OSError):
        for file in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # it is closed
                links.append(os.readlink(file))
    return {link[8:-1] for link in links if link.startswith("socket:")}

opened = Cluster("local", 1, 1)
held = set().union(*(sockets(process) for process in family()))
for kind in ("tcp", "tcp6"):
    for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[3] == "0A" and columns[9] in held:
            print(columns[1].partition(":")[0])
print("usage", os.environ["RAY_USAGE_STATS_ENABLED"])
opened.close()
"""


@pytest.fixture
def closed() -> str:
    """An address of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("spelled", ["{}", "ray://{}", "auto"])
def test_an_address_that_does_not_answer_is_refused_before_ray_asks(
    spelled: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        raise AssertionError("Ray would ask for minutes")

    monkeypatch.setenv("RAY_ADDRESS", closed)
    with refused("not-found", "ray"):
        cluster._connect(SimpleNamespace(init=init), spelled.format(closed), 1, 1)


@pytest.mark.ray
@pytest.mark.parametrize("before", ["", "import ray\n"], ids=["first", "imported by somebody else"])
def test_a_local_ray_listens_to_this_machine_only(before: str, closed: str) -> None:
    """Whoever reaches one of its ports could run code. What the environment says of addresses and statistics changes nothing."""
    pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` brings it.")
    if not Path("/proc/net/tcp").exists():
        pytest.skip("there is no /proc that says who listens")
    source = Path(cluster.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source), "RAY_ADDRESS": closed, "RAY_USAGE_STATS_ENABLED": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", before + LISTENING], env=environment, capture_output=True, text=True, check=True
    )
    *addresses, usage = done.stdout.splitlines()
    assert usage == "usage 0"
    assert addresses
    # 127.0.0.1 in both families, as the kernel writes it, and ::1
    assert set(addresses) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
