"""Explaining and shrinking beside a campaign: each job is a process, and a folder RUN/jobs/serve-ID with what came of it."""

from __future__ import annotations

import json
import secrets
import signal
import threading
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from neurotest.errors import BadInput, NeurotestError
from neurotest.runs.folder import Folder, declare
from neurotest.runs.store import Run
from neurotest.scale.start import pipe, start_process
from neurotest.serve.models import Missing, Taken

JOB, PAGE = "job.json", "explanation.html"
OURS = declare(r"jobs/serve-(?P<id>[0-9a-f]{8})/(job\.json|explanation\.html)")
MAX_PAGE_BYTES = 1 << 26  # bytes of an explanation
MAX_ACTIVE = 8  # jobs that wait or run
Kind = Literal["explain", "shrink"]


@dataclass(frozen=True)
class SideJob:
    """One job, as its folder keeps it."""

    id: str
    kind: Kind
    fault: int
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        page = f"/api/jobs/{self.id}/page" if self.kind == "explain" and self.state == "done" else None
        return {**asdict(self), "page": page}


class SideJobs:
    """Those of one run: what was started before is read from its folder; one runs at a time.

    network, train: what the user said of the target and its training data on the command line. A run from elsewhere opens
    nothing but the zoo without it: the jobs pass the same gate as the commands do.
    """

    def __init__(self, path: Path, network: Any = None, train: str | None = None) -> None:
        self.path, self.named = path, (network, train)
        self._lock = threading.Lock()
        self._jobs = {job.id: job for job in _stored(path)}
        self._process: BaseProcess | None = None
        self._closed = False

    def list(self) -> list[SideJob]:
        with self._lock:
            return list(self._jobs.values())

    def find(self, number: str) -> SideJob:
        with self._lock:
            if number not in self._jobs:
                raise Missing("not-found", "job", f"there is no job {number}.")
            return self._jobs[number]

    def start(self, kind: Kind, fault: int) -> SideJob:
        """A new job for a fault, or the one that is under way for it."""
        with self._lock:
            active = [job for job in self._jobs.values() if job.state in ("waiting", "running")]
            if same := [job for job in active if (job.kind, job.fault) == (kind, fault)]:
                return same[0]
            if len(active) >= MAX_ACTIVE:
                raise Taken("busy", "jobs", f"{MAX_ACTIVE} jobs are waiting already: try again when one of them is done.")
            job = SideJob(secrets.token_hex(4), kind, fault)
            self._note(job)  # a place that cannot be written to is refused here
        threading.Thread(target=self._work, name=f"neurotest-job-{job.id}", args=(not active,), daemon=True).start()
        return job

    def page(self, number: str) -> bytes:
        job = self.find(number)
        if job.to_dict()["page"] is None:
            raise Missing("not-found", "page", f"job {number} has no page.")
        return Folder(self.path).file(f"jobs/serve-{job.id}/{PAGE}").read(MAX_PAGE_BYTES)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()
            process.join(5)

    def _note(self, job: SideJob) -> None:
        self._jobs[job.id] = job
        try:
            Folder(self.path).file(f"jobs/serve-{job.id}/{JOB}").write(json.dumps(asdict(job)))
        except BadInput:
            if job.state == "waiting":
                del self._jobs[job.id]
            raise

    def _work(self, alone: bool) -> None:
        """Run what waits, one after the other; whoever started the first of them does it for all."""
        while alone:
            with self._lock:
                waiting = [job for job in self._jobs.values() if job.state == "waiting"]
                if not waiting or self._closed:
                    return
                job = replace(waiting[0], state="running")
                self._note(job)
                ours, theirs = pipe(duplex=False)
                self._process = start_process(_serve, theirs, str(self.path), job, *self.named)
                theirs.close()
            try:
                job = ours.recv()
            except EOFError:
                job = replace(job, state="failed", message="the job ended without a word: is there enough memory?")
            with self._lock:
                self._process.join()
                self._process = None
                if not self._closed:
                    self._note(job)


def _stored(path: Path) -> list[SideJob]:
    """Jobs of earlier servers; what had not ended then never will."""
    folder = Folder(path)
    jobs = []
    for name in sorted(folder.names()):
        match = OURS.fullmatch(name)
        if match and name.endswith(JOB):
            try:
                job = SideJob(**json.loads(folder.file(name).read(1 << 16)))
            except (BadInput, ValueError, TypeError):
                continue
            fits = job.id == match["id"] and job.kind in ("explain", "shrink") and type(job.fault) is int
            if fits and job.state in ("waiting", "running"):
                job = replace(job, state="failed", message="the server ended before the job did.")
            if fits and job.state in ("done", "failed") and isinstance(job.message, str):
                jobs.append(job)
    return jobs


def _serve(connection: Any, path: str, job: SideJob, network: Any, train: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    try:
        place = Path(path)
        message = _explain(place, job, network, train) if job.kind == "explain" else _shrink(place, job, network)
        connection.send(replace(job, state="done", message=message))
    except NeurotestError as error:
        connection.send(replace(job, state="failed", message=str(error)))


def _explain(path: Path, job: SideJob, network: Any, train: str | None) -> str:
    from neurotest.campaign.explain import Explanation, explain
    from neurotest.report.explain import headline, page

    explained = explain(path, job.fault, target=network, train=train)
    assert isinstance(explained, Explanation)
    with Run.open(path) as run:
        run.file(f"jobs/serve-{job.id}/{PAGE}").write(page(explained).encode("utf-8", "backslashreplace"))
    return headline(explained)


def _shrink(path: Path, job: SideJob, network: Any) -> str:
    from neurotest.campaign.shrink import shrink

    (family,) = shrink(path, network, fault=job.fault)["families"]
    sizes = f"L2 {family['l2_before']:.2f} to {family['l2_after']:.2f}"
    waits = " Its picture is here when the campaign has ended." if str(family["file"]).startswith("jobs/") else ""
    return f"{family['true']} taken for {family['predicted']}: {family['before']} became {family['after']} ({sizes}).{waits}"
