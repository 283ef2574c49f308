"""The labelling page's application."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, Query
from fastapi.responses import Response

from neurotest import __version__
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.serve import frame, models
from neurotest.serve.chooser import Chooser, Owner
from neurotest.serve.gate import Access
from neurotest.serve.labelling import Labelling
from neurotest.serve.models import Missing
from neurotest.serve.quantities import Quantities, open_labelling

SUMMARY = "Labels for an adaptive selection: the next input, answers, undo, a grid, progress, exports."
Format = Literal["csv", "folder", "label-studio"]


def _application(path: Path, labelling: Labelling, owner: Owner, by: str = "") -> FastAPI:
    """Every answer about the run is given by its owner."""
    app = frame.application("neurotest label", "label.html", SUMMARY)
    target = str(labelling.run["config"].get("target", ""))
    pictures = labelling.pictures
    about = {
        "run": path.name, "target": target, "pool": len(labelling.predicted), "classes": labelling.classes,
        "media": pictures.kind, "quantity": labelling.about(), "by": by, "version": __version__, "note": pictures.problem,
    }  # fmt: skip
    _add_reading(app, labelling, owner, about, path)
    _add_answering(app, labelling, owner)
    return app


def _add_reading(app: FastAPI, labelling: Labelling, owner: Owner, about: dict[str, object], path: Path) -> None:
    pictures = labelling.pictures

    @app.get("/api/about", response_model=models.About)
    def get_about() -> object:
        """What is labelled: the run, its classes, how inputs are shown."""
        return about

    @app.get("/api/progress", response_model=models.Progress)
    def get_progress() -> object:
        """Labels and faults so far, beside random, what the next batch promises, and how many faults are left."""
        return owner.ask(labelling.progress)

    @app.get("/api/inputs/{position}/picture", response_class=Response, responses=frame.PNG)
    def get_picture(position: models.Position) -> Response:
        """One input of the pool."""
        if position >= len(pictures.contents) or not pictures.has(position):
            raise Missing("not-found", "picture", f"the run has no image of input {position}.")
        shown = pictures.shown(position)
        return Response(shown.content, media_type=shown.kind, headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/inputs/{position}/sound", response_class=Response, responses=frame.WAV)
    def get_sound(position: models.Position) -> Response:
        """One input of the pool, to be played."""
        known = position < len(pictures.contents) and pictures.has(position)
        if not known or (heard := pictures.heard(position)) is None:
            raise Missing("not-found", "sound", f"the run has no audio of input {position}.")
        return Response(heard.content, media_type=heard.kind, headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/inputs/{position}/guess", response_model=models.Guess)
    def get_guess(position: models.Position) -> object:
        """What the network says about an input that was handed out."""
        return owner.ask(lambda: labelling.guess(position))

    @app.get("/api/export", response_class=Response, responses={200: {"content": {"text/csv": {}, "application/zip": {}}}})
    def get_export(form: Annotated[Format, Query(alias="format")] = "csv") -> Response:
        """Everything that was handed out so far, with its labels: a table, or an archive of a folder or of Label Studio tasks."""
        name, kind, content = _exported(path, form)
        return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


def _add_answering(app: FastAPI, labelling: Labelling, owner: Owner) -> None:
    @app.post("/api/next", response_model=models.Next)
    def post_next(body: models.Asking) -> object:
        """The most valuable input that nobody else has before them; the same again until it is answered."""
        return owner.ask(lambda: labelling.next(body.holder))

    @app.post("/api/label", response_model=models.Stored)
    def post_label(body: models.Answering) -> object:
        """Store a label; it is on disk when the answer comes."""
        if isinstance(labelling, Quantities) and body.label is None:
            numbers = labelling
            return owner.ask(
                lambda: numbers.number(body.holder, body.position, body.value, mark=body.mark, valid=body.valid, by=body.by)
            )
        if body.value is not None or body.mark is not None:
            raise BadInput("unsuitable", "value", "value, mark: the target is a classifier; give a label.")
        return owner.ask(lambda: labelling.label(body.holder, body.position, body.label, valid=body.valid, by=body.by))

    @app.post("/api/skip", response_model=models.Skipped)
    def post_skip(body: models.Skipping) -> object:
        """Not now."""
        return owner.ask(lambda: labelling.skip(body.holder, body.position))

    @app.post("/api/undo", response_model=models.Undone)
    def post_undo(body: models.Undoing) -> object:
        """Take back what was answered last in this tab; the label stays in the history."""
        return owner.ask(lambda: labelling.undo(body.holder, body.by))

    @app.post("/api/renew", response_model=models.Held)
    def post_renew(body: models.Asking) -> object:
        """Keep what this tab shows."""
        return owner.ask(lambda: labelling.renew(body.holder))

    @app.post("/api/grid", response_model=models.Grid)
    def post_grid(body: models.GridAsking) -> object:
        """Thirty inputs that the network takes for one class, the most suspicious first."""
        return owner.ask(lambda: labelling.grid(body.holder, body.predicted))

    @app.post("/api/grid/answer", response_model=models.GridStored)
    def post_grid_answer(body: models.GridAnswering) -> object:
        """Which inputs of a grid the network is right about, and which not."""
        return owner.ask(lambda: labelling.answer_grid(body.holder, body.right, body.wrong, body.by))


def _exported(path: Path, form: Format) -> tuple[str, str, bytes]:
    """Name, kind and content of what `neurotest export --all` writes."""
    from neurotest.select.exchange import export

    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in path.name)
    with tempfile.TemporaryDirectory(prefix="neurotest-export-") as folder:
        place = Path(folder)
        if form == "csv":
            export(path, "csv", place / "labels.csv", every=True)
            return f"{name}.csv", "text/csv; charset=utf-8", (place / "labels.csv").read_bytes()
        export(path, form, place / "labels" if form == "folder" else place / "labels" / "tasks.json", every=True)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted((place / "labels").rglob("*")):
                archive.write(file, f"{name}/{file.relative_to(place / 'labels')}")
        return f"{name}.zip", "application/zip", packed.getvalue()


def run(
    path: Path, *, port: int | None = None, by: str = "", size: int | None = None, stop: float | None = None,
    pool: AnyData | None = None, as_json: bool = False, browser: bool = True,
) -> None:  # fmt: skip
    """Serve the labelling page of a run until somebody stops it."""
    listener = frame.listening(port)
    owner = Owner()
    try:
        labelling = owner.ask(lambda: open_labelling(path, size=size, stop=stop, pool=pool))
    except BaseException:
        listener.close()
        raise
    numbers = isinstance(labelling, Quantities)  # their order is known: no selector learns beside the page
    chooser = None if numbers else Chooser(path, lambda answer: owner.later(lambda: labelling.take(answer)))
    try:
        app = owner.ask(lambda: _application(path, labelling, owner, by))
        access = owner.ask(lambda: Access.of(str(labelling.run["id"]), listener.getsockname()[1]))
        owner.ask(lambda: labelling.start(chooser.ask if chooser else lambda request: None, owner.later))
        frame.announce(access, str(path), as_json=as_json)
        frame.serve(app, access, listener, browser=browser)
    finally:
        if chooser is not None:
            chooser.close()
        owner.end(labelling.close)
