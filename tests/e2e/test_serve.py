"""Both servers as processes: who may ask what, what is refused, kill and restart, jobs, runs from elsewhere."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.servers import Server, ended
from tests.unit.serve.subjects import HOLDER, OTHER, adaptive_run, campaign
from tests.waiting import until

from neurotest.runs.store import Run
from neurotest.select.adaptive.labelling import add_labels

pytest.importorskip("fastapi", reason="the pages need fastapi: pip install 'neurotest[serve]'")
pytest.importorskip("uvicorn", reason="the pages need uvicorn: pip install 'neurotest[serve]'")
pytestmark = pytest.mark.plain
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("label")
    adaptive_run(folder)
    with Server("label", "run", "--round", 5, cwd=folder) as server:
        yield server


@pytest.fixture(scope="module")
def campaigned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("serve")
    path = campaign(folder)
    with Server("serve", "campaign", "--train", "npz:pool.npz#x", cwd=folder) as server:
        yield server, path


def test_the_token_opens_and_the_cookie_keeps(labelled: Server) -> None:
    assert labelled.ask("/", token=False).status == 401
    assert labelled.ask("/?token=" + "0" * 64, token=False).status == 401
    entered = labelled.ask(f"/?token={labelled.token}", token=False)
    assert (entered.status, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].partition(";")[0]
    page = labelled.ask("/", token=False, cookie=cookie)
    assert page.status == 200
    assert b"What is this?" in page.body
    assert labelled.ask("/api/about", token=False, cookie=cookie).json["classes"] == ["0", "1", "2", "3"]


def test_every_file_of_the_page_is_there_and_nothing_comes_from_elsewhere(labelled: Server, campaigned: Any) -> None:
    for server in (labelled, campaigned[0]):
        page = server.ask("/").body.decode()
        names = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        for name in names:
            if name.startswith("/static"):
                assert server.ask(name).status == 200, name
        assert "http://" not in page
        assert "https://" not in page


@pytest.mark.parametrize(
    "path", ["/api/about", "/api/progress", "/api/inputs/0/picture", "/static/label.js", "/api/openapi.json", "/x"]
)
def test_nothing_is_answered_without_the_token(labelled: Server, path: str) -> None:
    assert labelled.ask(path, token=False).status in (401, 429)


def test_foreign_hosts_sites_forms_and_large_bodies_are_refused(labelled: Server) -> None:
    body = {"holder": HOLDER}
    assert labelled.ask("/api/next", body, host="evil.example").status == 400
    assert labelled.ask("/api/next", body, origin="http://evil.example").status == 403
    assert labelled.ask("/api/next", body, sec_fetch_site="cross-site").status == 403
    form = labelled.ask("/api/next", raw=b"holder=0123456789abcdef", content_type="application/x-www-form-urlencoded")
    assert form.status == 415
    assert labelled.ask("/api/next", raw=b"[" * (1 << 17), content_type="application/json").status == 413
    assert labelled.ask("/api/next", raw=b"[" * 60000, content_type="application/json").status in (400, 422)
    assert labelled.ask("/api/next", {"holder": "../x"}).status == 422


PATHS = [
    "/static/../label_api.py", "/static/..%2flabel_api.py", "/static/%2e%2e/%2e%2e/errors.py", "/static//etc/passwd",
    "/etc/passwd",
    "/api/inputs/../../run.sqlite/picture", "/api/inputs/..%2f..%2frun.sqlite/picture", "/api/inputs/999999/picture",
    "/api/inputs/-1/picture", "/api/inputs/1e3/picture", "/run.sqlite", "/static/run.sqlite", "/api/export?format=../x",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(labelled: Server, path: str) -> None:
    answer = labelled.ask(path)
    assert answer.status in (404, 422), (path, answer.status)
    assert b"root:" not in answer.body
    assert b"SQLite" not in answer.body


@pytest.mark.parametrize(
    "path",
    ["/api/jobs/..%2f..%2f/page", "/api/jobs/../page", "/api/faults/1/..%2frun", "/api/faults/0/passwd",
     "/api/families/../faults", "/api/jobs/00000000/page", "/api/jobs/00000000"],
)  # fmt: skip
def test_no_path_leads_out_of_a_campaign(campaigned: Any, path: str) -> None:
    assert campaigned[0].ask(path).status in (404, 422)


def test_a_whole_session_and_its_exports(labelled: Server, tmp_path: Path) -> None:
    first = labelled.ask("/api/next", {"holder": HOLDER}).json["input"]
    second = labelled.ask("/api/next", {"holder": OTHER}).json["input"]
    assert first["position"] != second["position"]
    picture = labelled.ask(first["picture"])
    assert (picture.status, picture.headers["content-type"], picture.body[:4]) == (200, "image/png", b"\x89PNG")
    guess = labelled.ask(f"/api/inputs/{first['position']}/guess").json
    answer = {"holder": HOLDER, "position": first["position"], "label": guess["predicted"], "by": "ann"}
    assert labelled.ask("/api/label", answer).json["fault"] is False
    again = labelled.ask("/api/label", answer)
    assert (again.status, "labelled meanwhile" in again.json["detail"]) == (409, True)
    assert labelled.ask("/api/label", {**answer, "holder": OTHER, "position": second["position"], "label": 9}).status == 400
    invalid = {"holder": OTHER, "position": second["position"], "label": None, "valid": False}
    assert labelled.ask("/api/label", invalid).json["fault"] is None
    progress = labelled.ask("/api/progress").json
    assert (progress["labels"], progress["invalid"], progress["people"]) == (2, 1, ["ann"])
    table = labelled.ask("/api/export?format=csv").body.decode()
    assert "invalid" in table
    (tmp_path / "labels.csv").write_text("\n".join(table.splitlines()))
    for form in ("folder", "label-studio"):
        packed = labelled.ask(f"/api/export?format={form}")
        assert zipfile.ZipFile(io.BytesIO(packed.body)).testzip() is None
    # The table goes into another run of the same pool as it is.
    other = adaptive_run(tmp_path)
    assert add_labels(other, tmp_path / "labels.csv")["added"] == 2
    with Run.open(other) as run:
        assert sorted((row.label is None, row.valid) for row in run.labels()) == [(False, 1), (True, 0)]


def next_input(server: Server) -> int:
    """Of a server that has just been started, perhaps: its selector has to say something first."""

    def chosen() -> Any:
        answer = server.ask("/api/next", {"holder": HOLDER}).json
        return answer["state"] != "choosing" and answer

    return int(until(chosen, "an input to label")["input"]["position"])


def test_killed_and_started_again_nothing_is_lost_and_the_cookie_still_opens(tmp_path: Path) -> None:
    adaptive_run(tmp_path)
    given: dict[int, int] = {}
    shown, port, cookie = None, None, ""
    for start in range(3):
        with Server("label", "run", "--round", 4, cwd=tmp_path, port=port) as server:
            port = server.port
            if cookie:
                assert server.ask("/api/about", token=False, cookie=cookie).status == 200
            cookie = server.ask(f"/?token={server.token}", token=False).headers["set-cookie"].partition(";")[0]
            for _ in range(6):
                position = next_input(server)
                assert shown in (None, position)
                shown = None
                stored = server.ask("/api/label", {"holder": HOLDER, "position": position, "label": position % 4})
                assert stored.status == 200
                assert position not in given
                given[position] = position % 4
            shown = next_input(server) if start < 2 else None
            server.kill()
    with Run.open(tmp_path / "run") as run:
        assert {row.position: row.label for row in run.labels()} == given
    assert len(given) == 18


def test_a_second_server_is_refused_in_a_sentence_and_ctrl_c_is_a_good_end(tmp_path: Path, cli: Any) -> None:
    adaptive_run(tmp_path)
    with Server("label", "run", cwd=tmp_path) as server:
        second = cli("label", "run", "--no-browser", "--port", 0)
        assert (second.code, "being written by another process" in second.err) == (2, True)
        assert cli("select", "--status", "run").code == 0  # reading goes on beside it
        assert server.stop() == 0
    assert cli("labels", "run", "show").code == 0
    assert (tmp_path / "server-errors.txt").read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["label", "nowhere"], "is not a run"),
        (["label", "run", "--port", 70000], "65535"),
        (["label", "run", "--stop", 2], "--stop 2"),
        (["label", "run", "--round", 0], "--round 0"),
        (["label", "run", "--train", "zoo:mnist/train"], "neurotest label TARGET POOL"),
        (["label", "run", "--mean", "0.5"], "neurotest label TARGET POOL"),
        (["label", "py:model.py:build", "npz:pool.npz#x", "--method", "deepgini"], "adaptive"),
        (["label", "py:model.py:build", "npz:pool.npz#x", "--pool", "npz:pool.npz#x"], "second argument"),
        (["serve", "nowhere"], "is not a run"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, cli: Any, arguments: list[Any], words: str) -> None:
    adaptive_run(tmp_path)
    done = cli(*arguments, "--no-browser")
    assert (done.code, words in done.err) == (2, True), done.err


def test_from_nothing(tmp_path: Path) -> None:
    from tests.unit.serve.subjects import write_project

    write_project(tmp_path)
    with Server(
        "label", "py:model.py:build", "npz:pool.npz#x", "--size", "1x8x8", "--out", "made", "--round", 5, cwd=tmp_path
    ) as server:
        assert server.started["run"] == "made"
        assert server.ask("/api/next", {"holder": HOLDER}).json["state"] == "show"
        assert server.stop() == 0
    with Run.open(tmp_path / "made") as run:
        assert run["state"] == "done"


# -- a campaign


def test_families_faults_and_pictures(campaigned: Any) -> None:
    server, path = campaigned
    state = server.ask("/api/state").json
    assert (state["state"], state["command"], state["browsable"]) == ("done", "fuzz", True)
    count = server.ask("/api/families").json["total"]
    assert {"name": "fault families", "value": str(count)} in state["numbers"]
    numbers = {one["name"]: one["value"] for one in state["numbers"]}
    assert re.fullmatch(r"\d+ of 20", numbers["seeds broken"])
    spent = {value for name, value in numbers.items() if re.fullmatch(r"of the budget: \d+ of 600 forward passes", name)}
    assert spent == {"100%"}
    assert "Whether a person would still" in state["caution"]
    assert all(step["command"].startswith("neurotest ") for step in state["steps"])
    listed = server.ask("/api/families?limit=5").json
    assert 1 <= len(listed["families"]) <= 5
    first = listed["families"][0]
    fitting = server.ask(f"/api/families?true={first['true']}&predicted={first['predicted']}&limit=200").json
    assert {(f["true"], f["predicted"]) for f in fitting["families"]} == {(first["true"], first["predicted"])}
    assert server.ask("/api/families?search=nothing-is-called-so").json["total"] == 0
    faults = server.ask(f"/api/families/{first['key']}/faults").json
    assert faults["total"] == first["faults"]
    with Run.open(path) as run:
        counted = run.rows("SELECT count(*) FROM mutant WHERE oracle IS NOT NULL")[0][0]
    every = server.ask("/api/families?limit=200").json
    assert sum(f["faults"] for f in every["families"]) == counted or every["total"] > 200
    fault = server.ask(f"/api/faults/{first['fault']}").json
    assert {"seed", "fault", "difference"} <= set(fault["pictures"])
    assert fault["judged"] == "metamorphic: the prediction is not that of the seed"
    assert fault["times"] * fault["linf"] <= 1 + 1e-6
    for view in fault["pictures"]:
        assert server.ask(f"/api/faults/{first['fault']}/{view}").body[:4] == b"\x89PNG"
    names = {part["name"] for part in server.ask("/api/sections").json["parts"]}
    assert {"campaign-growth", "operators"} <= names
    assert "families" not in names


def test_explain_and_shrink_are_jobs_beside_the_run(campaigned: Any) -> None:
    server, path = campaigned
    number = server.ask("/api/families?limit=1").json["families"][0]["fault"]
    jobs = {kind: server.ask("/api/jobs", {"kind": kind, "fault": number}) for kind in ("shrink", "explain")}
    assert {answer.status for answer in jobs.values()} == {202}
    assert server.ask("/api/jobs", {"kind": "explain", "fault": 10**9}).status == 404
    for kind, answer in jobs.items():
        job = ended(server, answer.json)
        assert job["state"] == "done", job
        assert (job["page"] is not None) == (kind == "explain")
        if job["page"]:
            page = server.ask(job["page"])
            assert b"<html" in page.body
            assert "sandbox" in page.headers["content-security-policy"]
        assert json.loads((path / "jobs" / f"serve-{job['id']}" / "job.json").read_text())["state"] == "done"
    assert "shrunk" in server.ask(f"/api/faults/{number}").json["pictures"]


def test_a_run_from_elsewhere_runs_no_code_by_being_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its target names a file that would leave a trace if it were run."""
    path = campaign(tmp_path, fresh=True)
    trace = tmp_path / "trace"
    (tmp_path / "model.py").write_text(f"open({str(trace)!r}, 'w').close()\n{(tmp_path / 'model.py').read_text()}")
    sent = tmp_path / "sent"
    shutil.copytree(path, sent)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another-cache"))
    with Server("serve", "sent", cwd=tmp_path) as server:
        assert "made elsewhere" in server.ask("/api/state").json["note"]
        number = server.ask("/api/families?limit=1").json["families"][0]["fault"]
        assert server.ask("/api/sections").status == 200
        for kind in ("explain", "shrink"):
            job = server.ask("/api/jobs", {"kind": kind, "fault": number}).json
            job = ended(server, job)
            assert (job["state"], "untrusted run" in job["message"]) == ("failed", True)
    assert not trace.exists()


def test_a_job_of_an_earlier_server_is_read_and_a_forged_one_is_not(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    for name, content in {
        "serve-00000001": {"id": "00000001", "kind": "explain", "fault": 1, "state": "running", "message": ""},
        "serve-00000002": {"id": "00000001", "kind": "explain", "fault": 1, "state": "done", "message": ""},
        "serve-00000003": {"id": "00000003", "kind": "rm", "fault": "x", "state": "done", "message": ""},
        "serve-00000004": {"id": "00000004", "kind": "explain", "fault": 1, "state": "done", "message": ""},
    }.items():
        (path / "jobs" / name).mkdir(parents=True)
        (path / "jobs" / name / "job.json").write_text(json.dumps(content))
    (path / "jobs" / "serve-00000004" / "explanation.html").symlink_to(ROOT / "README.md")
    with Server("serve", "campaign", cwd=tmp_path) as server:
        jobs = {job["id"]: job["state"] for job in server.ask("/api/jobs").json["jobs"]}
        assert jobs == {"00000001": "failed", "00000004": "done"}
        assert server.ask("/api/jobs/00000004/page").status == 400  # a link leads out of the run


def test_other_runs_are_shown_by_their_report(tmp_path: Path) -> None:
    adaptive_run(tmp_path)
    with Server("serve", "run", cwd=tmp_path) as server:
        state = server.ask("/api/state").json
        assert (state["browsable"], state["state"]) == (False, "done")
        assert "picks" in {part["name"] for part in server.ask("/api/sections").json["parts"]}
        assert server.ask("/api/families").status == 404


def test_the_description_lists_what_the_docs_list(labelled: Server, campaigned: Any) -> None:
    for server, page in ((labelled, "label.md"), (campaigned[0], "serve.md")):
        paths = server.ask("/api/openapi.json").json["paths"]
        described = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
        text = (ROOT / "docs" / page).read_text()
        assert set(re.findall(r"\| `((?:GET|POST) /api/[^`]+)`", text)) == described, page
