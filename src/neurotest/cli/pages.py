"""The page of every run that a command finishes or changes, written once here and by no command itself."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neurotest.cli import show
from neurotest.errors import command

MAP_AFTER = 60.0  # seconds of processor time that a command took: then its map adds less than a tenth
RUNS = ("run", "resume")  # parameters that name a run


def with_pages(command: Callable[[], Any], values: Mapping[str, Any], *, quiet: bool) -> Any:
    """Do the work, then write the pages of its runs: `report` in the JSON, and a line for people, name the last one.

    --no-report leaves them out. A run that was finished before, has a page and is changed by the command gets a new one. With
    --track the finished runs go to the tracker, pages and all.
    """
    from neurotest.jobs.life import Finished

    begin = time.process_time()
    try:
        content, print_result, *code = command()
        finished = _finished(content, values)
    except Finished:  # a process may have died between the last row of a run and its page, which is made of them
        place = values.get("resume")
        if values.get("no_report") or not isinstance(place, Path) or _has_page(place):
            raise
        content, print_result, code, finished = {"run": str(place), "notes": []}, _only_page, [], [place]
    changed = [path for name in RUNS if isinstance(path := values.get(name), Path) and path not in finished and _stale(path)]
    places = [*([] if values.get("no_report") else finished), *changed]
    layout = "tsne" if time.process_time() - begin > MAP_AFTER else None
    pages = [page for path in places if (page := _page(path, layout, quiet=quiet)) is not None]
    wanted = finished if values.get("track") else []
    tracked = [place for path in wanted if (place := _tracked(path, values["track"], quiet=quiet)) is not None]
    added = {name: str(places[-1]) for name, places in (("report", pages), ("tracked", tracked)) if places}

    def print_all() -> None:
        print_result()
        if pages:
            print(f"report: open {pages[-1]} in a browser")
        for place in tracked:
            print(f"tracked: {place}")

    return ({**content, **added}, print_all, *code)


def _finished(content: Mapping[str, Any], values: Mapping[str, Any]) -> list[Path]:
    """The run that a command has made and finished; its result names it."""
    if "no_report" not in values or values.get("status") is not None or not content.get("run"):
        return []
    from neurotest.runs.store import Run

    path = Path(content["run"])
    with Run.open(path) as run:
        return [path] if run["state"] == "done" else []


def _only_page() -> None:
    print("it was finished but for the page")


def _has_page(path: Path) -> bool:
    from neurotest.runs.folder import Folder
    from neurotest.runs.places import PAGE

    return Folder(path).file(PAGE).status() is not None


def _stale(path: Path) -> bool:
    """Whether a run has a page that is older than the run itself."""
    from neurotest.errors import BadInput
    from neurotest.runs.folder import Folder
    from neurotest.runs.places import PAGE
    from neurotest.runs.schema import FILE

    try:
        page, database = (Folder(path).file(name).status() for name in (PAGE, FILE))
    except (BadInput, OSError):
        return False
    return page is not None and database is not None and page.st_mtime_ns < database.st_mtime_ns


def _page(path: Path, layout: str | None, *, quiet: bool) -> Path | None:
    """A page that cannot be written costs itself and nothing of the run, which is finished."""
    from neurotest.errors import Remark
    from neurotest.report.section import write_report

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Remark)  # the command has said what there is to say of its network
            return write_report(path, layout=layout)
    except KeyboardInterrupt:
        reason = "interrupted"
    except Exception as error:
        reason = str(error)
    show.remark(
        f"the page was not written ({reason}). The results are stored; to try again: {command('report', path)}", quiet=quiet
    )
    return None


def _tracked(path: Path, tracker: str, *, quiet: bool) -> str | None:
    """A tracker that cannot be reached costs nothing of the run, which is finished."""
    from neurotest.report.track import track

    try:
        return track(path, tracker)
    except KeyboardInterrupt:
        reason = "interrupted"
    except Exception as error:
        reason = str(error)
    show.remark(
        f"not tracked ({reason}). The results are stored; to try again: {command('runs', 'track', path, tracker)}", quiet=quiet
    )
    return None
