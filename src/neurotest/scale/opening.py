"""From `--workers` and `--ray` to an executor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neurotest.errors import BadInput
from neurotest.executor import Executor, Serial, using
from neurotest.public import public

MAX_WORKERS = 4096  # processes of one machine


def open_executor(workers: int | None = None, ray: str | None = None) -> Executor:
    """Processes for several workers, actors where a Ray is named, otherwise everything here.

    Workers share the threads that this process would have used.
    """
    if workers is not None and not 1 <= workers <= MAX_WORKERS:
        raise BadInput("out-of-range", "workers", f"--workers {workers}: expected an integer from 1 to {MAX_WORKERS}.")
    if ray is None and (workers or 1) == 1:
        return Serial()
    import torch

    threads = max(1, torch.get_num_threads() // (workers or torch.get_num_threads()))
    if ray is not None:
        from neurotest.scale.cluster import Cluster

        return Cluster(ray, workers, threads)
    from neurotest.scale.processes import Processes

    assert workers is not None
    return Processes(workers, threads)


@public()
@contextmanager
def workers(count: int | None = None, *, ray: str | None = None) -> Iterator[Executor]:
    """Let everything inside be done by so many workers: processes of this machine or, with `ray`, actors of a cluster.

    count: how many; with `ray` None for as many as it has processors. ray: `local`, `auto`, HOST:PORT or ray://HOST:PORT.
    Results do not depend on it. Scripts that use it need the usual `if __name__ == "__main__":`.
    """
    with using(open_executor(count, ray)) as executor:
        yield executor
