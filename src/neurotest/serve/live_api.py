"""The live page's application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi.responses import Response

from neurotest.serve import frame, models
from neurotest.serve.gate import Access
from neurotest.serve.live import Live
from neurotest.serve.sidejobs import SideJobs

HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "a page of its own"}}
SUMMARY = "A run while it is written: how it stands, its fault families, its faults, and jobs that explain or shrink them."
# An explanation is a page of its own: no script, no request, pictures and styles inside it.
PAGE_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; sandbox"
)
Word = Annotated[str, Query(max_length=200)]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=200)]
JobId = Annotated[str, models.Field(pattern=r"^[0-9a-f]{8}$")]
Key = Annotated[str, models.Field(pattern=r"^[0-9a-f]{16}$")]


def _application(live: Live, jobs: SideJobs) -> FastAPI:
    app = frame.application("neurotest serve", "live.html", SUMMARY)

    @app.get("/api/state", response_model=models.State)
    def get_state() -> object:
        """How the run stands, in a sentence and in numbers."""
        return live.state()

    @app.get("/api/sections", response_model=models.ReportSections)
    def get_sections() -> object:
        """The sections of the report that what the run holds by now is enough for, as HTML."""
        return live.parts()

    _add_faults(app, live)
    _add_jobs(app, live, jobs)
    return app


def _add_faults(app: FastAPI, live: Live) -> None:
    @app.get("/api/families", response_model=models.FamilyList)
    def get_families(
        true: Word = "", predicted: Word = "", operator: Word = "", search: Word = "", offset: Offset = 0, limit: Limit = 50
    ) -> object:
        """Fault families, the most frequent first; by true class, predicted class, mutation, and words."""
        return live.families({"true": true, "predicted": predicted, "operator": operator}, search, offset, limit)

    @app.get("/api/families/{key}/faults", response_model=models.FaultList)
    def get_faults(key: Key, offset: Offset = 0, limit: Limit = 50) -> object:
        """The faults of a family, the smallest change first."""
        return live.faults(key, offset, limit)

    @app.get("/api/faults/{number}", response_model=models.Fault)
    def get_fault(number: models.Position) -> object:
        """One fault: what it was, what it is taken for, what was done to it."""
        return live.fault(number)

    @app.get("/api/faults/{number}/{view}", response_class=Response, responses=frame.PNG)
    def get_picture(number: models.Position, view: Literal["seed", "fault", "difference", "shrunk"]) -> Response:
        """The seed, the fault, their difference (`times` of the fault as large), or the smallest change of the family."""
        shown = live.picture(number, view)
        return Response(shown.content, media_type=shown.kind)

    @app.get("/api/faults/{number}/{view}/sound", response_class=Response, responses=frame.WAV)
    def get_sound(number: models.Position, view: Literal["seed", "fault", "shrunk"]) -> Response:
        """The same to be played, where inputs are sound."""
        heard = live.sound(number, view)
        return Response(heard.content, media_type=heard.kind)


def _add_jobs(app: FastAPI, live: Live, jobs: SideJobs) -> None:
    @app.get("/api/jobs", response_model=models.JobList)
    def get_jobs() -> object:
        """Jobs of this run, and how they stand."""
        return {"jobs": [job.to_dict() for job in jobs.list()]}

    @app.post("/api/jobs", response_model=models.JobStatus, status_code=202)
    def post_job(body: models.Starting) -> object:
        """Explain a fault, or look for the smallest change of its family; at most eight wait."""
        live.fault(body.fault)
        return jobs.start(body.kind, body.fault).to_dict()

    @app.get("/api/jobs/{number}", response_model=models.JobStatus)
    def get_job(number: JobId) -> object:
        """One job."""
        return jobs.find(number).to_dict()

    @app.get("/api/jobs/{number}/page", response_class=Response, responses=HTML)
    def get_page(number: JobId) -> Response:
        """What explaining gave."""
        return Response(jobs.page(number), media_type="text/html", headers={"content-security-policy": PAGE_POLICY})


def run(
    path: Path, network: Any = None, train: str | None = None, *, port: int | None = None, as_json: bool = False,
    browser: bool = True,
) -> None:  # fmt: skip
    """Serve the live page of a run until somebody stops it."""
    live = Live(path, network)
    jobs = SideJobs(path, network, train)
    listener = frame.listening(port)
    access = Access.of(live.id, listener.getsockname()[1])
    try:
        frame.announce(access, str(path), as_json=as_json)
        frame.serve(_application(live, jobs), access, listener, browser=browser)
    finally:
        jobs.close()
        listener.close()
