"""Workers that are actors of a Ray cluster, or of a Ray that is started here."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import suppress
from typing import Any

from neurotest.errors import BadInput
from neurotest.scale.pool import WorkerDied, WorkerPool
from neurotest.scale.start import current_folder
from neurotest.scale.tasks import TaskRunner, settle

LOCAL, AUTO = "local", "auto"
PATIENCE = 20  # seconds for an address to answer


class _RayWorker:
    """The actor: one worker, wherever Ray puts it."""

    def __init__(self, threads: int, folder: str) -> None:
        with suppress(OSError):  # on another machine there may be no such folder
            os.chdir(folder)  # where relative names of files count from
        settle(threads)
        self.runner = TaskRunner()

    def ready(self) -> None:
        """Answers as soon as it has started."""

    def do(self, key: str, shared: list[Any], message: bytes) -> bytes:
        import ray

        return self.runner.do(key, lambda: ray.get(shared[0]), message)


class _Actor:
    """An actor, and the answer it owes."""

    def __init__(self, ray: Any, published: dict[str, Any], threads: int) -> None:
        self._ray, self._published = ray, published
        self._actor = ray.remote(num_cpus=threads, max_restarts=0)(_RayWorker).remote(threads, os.getcwd())
        self._started: Any = self._actor.ready.remote()  # what it answers first
        self._task: Any = None
        self.owed: Any = None

    def send(self, key: str, message: bytes) -> None:
        # In a list, so that Ray gives the reference and not what it stands for: that is read once per worker.
        self._task = self._actor.do.remote(key, [self._published[key]], message)
        self.owed = self._task if self._started is None else self._started

    def answer(self) -> bytes | None:
        try:
            content: bytes | None = self._ray.get(self.owed)
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(str(error).strip().splitlines()[0]) from error
        if content is None:
            self._started, self.owed = None, self._task
        return content

    def end(self) -> None:
        self._ray.kill(self._actor)


class Cluster(WorkerPool[_Actor]):
    """address: `local`, `auto` (the Ray that RAY_ADDRESS names, else one on this machine), HOST:PORT or ray://HOST:PORT.
    workers: None for as many as the cluster has processors for."""

    name = "ray"

    def __init__(self, address: str, workers: int | None, threads: int) -> None:
        self._ray = ray = _ray(address)
        self._ours = not ray.is_initialized()
        self._empty = tempfile.TemporaryDirectory(prefix="neurotest-empty-", ignore_cleanup_errors=True)
        if self._ours:
            with current_folder(self._empty.name):
                _connect(ray, address, workers, threads)
        processors = int(ray.cluster_resources().get("CPU", 1))
        if workers is not None and workers * threads > processors:
            self.close_ray()
            raise BadInput(
                "too-large",
                "workers",
                f"--workers {workers} with {threads} threads each: the Ray at {address} has {processors} processors; ask for "
                "fewer workers or threads.",
            )
        super().__init__(workers or max(1, processors // threads))
        self.threads = threads
        self._published: dict[str, Any] = {}

    def start(self) -> _Actor:
        return _Actor(self._ray, self._published, self.threads)

    def wait(self, workers: list[_Actor], seconds: float) -> list[_Actor]:
        ready, _ = self._ray.wait([worker.owed for worker in workers], num_returns=1, timeout=seconds)
        return [worker for worker in workers if worker.owed in ready]

    def publish(self, key: str, content: bytes) -> None:
        self._published[key] = self._ray.put(content)

    def withdraw(self, key: str) -> None:
        self._published.pop(key, None)

    def close(self) -> None:
        super().close()
        self.close_ray()

    def close_ray(self) -> None:
        if self._ours:
            self._ray.shutdown()
        self._empty.cleanup()


def _ray(address: str) -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent anywhere
    if address == LOCAL:
        # Whoever reaches a port of a Ray can run code as its user. Ray listens on all interfaces, unless it believes to be on a
        # system that cannot form clusters; it reads this when it is imported.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise BadInput(
            "not-installed", "ray", "--ray needs Ray: pip install 'neurotest[ray]', on every machine of the cluster."
        ) from error
    if address == LOCAL:
        from ray._private import ray_constants  # what it read, should somebody else have imported it before

        ray_constants.ENABLE_RAY_CLUSTER = False
    return ray


def _connect(ray: Any, address: str, workers: int | None, threads: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == LOCAL:
            processors = max(os.cpu_count() or 1, (workers or 1) * threads)
            # Ray makes its workers nice, which starves them as soon as anything else runs on the machine.
            ray.init(address=LOCAL, num_cpus=processors, include_dashboard=False, _system_config={"worker_niceness": 0}, **quiet)
        else:
            _knock(os.environ.get("RAY_ADDRESS", "") if address == AUTO else address)
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(
            "not-found",
            "ray",
            f"--ray {address}: no Ray answers there ({reason}): start one with `ray start --head`, or use --ray local.",
        ) from error


def _knock(address: str) -> None:
    """Whether anybody listens at HOST:PORT; Ray itself would ask for minutes, and listens to no signal meanwhile."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 1 << 16:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
