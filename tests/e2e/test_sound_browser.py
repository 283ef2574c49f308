"""Sound in a real browser: the labelling page plays, keys play and answer, reports and the live page have players."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.servers import Server
from tests.waiting import LIMIT

import neurotest
from neurotest import Run
from neurotest.report.section import write_report

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="a browser is driven by playwright: pip install 'neurotest[browser]'"
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no chromium here: install it, or name one in CHROMIUM", allow_module_level=True)
pytestmark = [pytest.mark.browser, pytest.mark.plain]
PATIENCE = 1000 * LIMIT  # milliseconds
TARGET, POOL = "zoo:spoken-melnet", "zoo:spoken-digits/test[:40]"
LOADED = """audio => new Promise(done => {
  audio.onloadedmetadata = () => done(audio.duration); audio.onerror = () => done(-1); audio.load()
})"""
PLAYED = "audio => new Promise(done => { if (audio.currentTime > 0) done(true); audio.ontimeupdate = () => done(true) })"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One tab whose console has to stay silent and that asks nobody but us."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"], timeout=PATIENCE
        )
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(PATIENCE)
        problems: list[str] = []
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        yield tab
        browser.close()
        assert not problems


def shot(page: Any, name: str) -> None:
    """Kept where PICTURES names a folder: the docs show them."""
    if place := os.environ.get("PICTURES"):
        page.screenshot(path=str(Path(place) / f"{name}.png"))


def test_the_labelling_page_plays_and_answers(page: Any, tmp_path: Path) -> None:
    with Server("label", TARGET, POOL, "--out", "run", cwd=tmp_path) as server:
        page.goto(server.url)
        page.wait_for_selector("#picture audio")
        audio = page.locator("#picture audio")
        assert page.evaluate(LOADED, audio.element_handle()) == pytest.approx(0.6, abs=0.01)
        size = page.evaluate("image => [image.naturalWidth, image.naturalHeight]", page.locator("#picture img").element_handle())
        assert size[1] == 64
        page.keyboard.press("ArrowDown")
        assert page.evaluate(PLAYED, audio.element_handle())
        shot(page, "label-sound")
        for key in "01234":
            before = page.locator("#picture").get_attribute("data-position")
            page.keyboard.press(key)
            page.wait_for_selector(f"#picture:not([data-position='{before}']) audio")
        page.click("#many")
        page.wait_for_selector("#cells button audio", state="attached")
        page.keyboard.press("ArrowRight")
        cell = page.locator("#cells button audio").nth(1)
        assert page.evaluate(PLAYED, cell.element_handle())
        answer = server.ask("/api/inputs/0/sound")
        assert (answer.status, answer.headers["content-type"], answer.body[:4]) == (200, "audio/wav", b"RIFF")
        assert server.ask("/api/inputs/0/sound", token=False).status in (401, 403)
        assert server.ask("/api/inputs/4000/sound").status == 404
        page.goto("about:blank")  # a page without its server says so on the console
        server.stop()
    with Run.open(tmp_path / "run") as run:
        assert len({row.position for row in run.labels()}) == 5
        assert all(row.file.base.endswith(".wav") for row in run.files("picked"))


def test_reports_and_the_live_page_have_players(page: Any, tmp_path: Path) -> None:
    neurotest.fuzz(TARGET, POOL, forwards=300, out=tmp_path / "run")
    write_report(tmp_path / "run")
    page.goto(f"file://{tmp_path}/run/report.html")
    player = page.locator("#families audio").first
    player.scroll_into_view_if_needed()
    assert page.evaluate(LOADED, player.element_handle()) == pytest.approx(0.6, abs=0.01)
    shot(page, "report-sound-families")
    page.evaluate("window.scrollTo(0, 0)")
    shot(page, "report-sound")
    with Server("serve", "run", cwd=tmp_path) as server:
        page.goto(server.url)
        page.locator("#families button, .families button").first.click()
        page.wait_for_selector("#views audio")
        assert page.evaluate(LOADED, page.locator("#views audio").first.element_handle()) == pytest.approx(0.6, abs=0.01)
        shot(page, "serve-sound")
        page.goto("about:blank")
        server.stop()
