"""Pages in a real browser: a silent console, no request, charts that answer, data that can be saved, names that stay text."""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.report.subjects import HOSTILE, inputs, network
from tests.waiting import LIMIT

import neurotest
from neurotest import Run
from neurotest.data.source import ArraySource
from neurotest.report.section import write_report
from neurotest.select import compare

pytestmark = [pytest.mark.browser, pytest.mark.plain]
PATIENCE = 1000 * LIMIT  # milliseconds
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:  # no page is made where none can be opened
    """Pages of runs whose class names and file names would break them if they were markup."""
    root = tmp_path_factory.mktemp("pages")
    pool = inputs(wrong=6)
    named = ArraySource(
        pool.read(np.arange(24)), pool.labels, classes=HOSTILE, names=[f"{HOSTILE[n % 3]}{n}.png" for n in range(24)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROTEST_CACHE", str(root / "cache"))
        compare(network(), named, ["deepgini", "margin", "random"], 6, out=root / "select")
        neurotest.fuzz(network(), inputs(), "goals", iterations=60, batch=32, tries=8, out=root / "fuzz")
        neurotest.cover(network(), inputs(), ["nac:0.5", "kmnc:10"], train=inputs(), by="class", out=root / "cover")
        neurotest.attack(network(), inputs(), "fgsm:eps=0.3", out=root / "attack")
    for name in ("fuzz", "attack"):  # the map opens the target of a run: that of the tests has no spec to be opened by
        with Run.open(root / name) as run, pytest.MonkeyPatch.context() as patch:
            assert run["summary"]["faults"]
            patch.setattr("neurotest.report.map.stored_target", lambda run: network())
            write_report(root / name, layout="tsne")
    return {name: write_page(root / name) for name in ("select", "fuzz", "cover", "attack")}


def write_page(run: Path) -> Path:
    page = run / "report.html"
    return page if page.exists() else write_report(run)


Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens pages; whatever they say on the console, ask anybody for, or pop up fails the test."""
    problems: list[str] = []
    contexts: list[Any] = []

    def open_page(path: Path, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": 1100, "height": 900}, accept_downloads=True, **settings)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        own = path.resolve().as_uri()
        page.on(
            "request", lambda r: problems.append(f"request {r.url}") if not r.url.startswith((own, "data:", "blob:")) else None
        )
        page.on("pageerror", lambda error: problems.append(f"error {error}"))
        page.on("console", lambda m: problems.append(f"console {m.text}") if m.type in ("error", "warning") else None)
        page.on("dialog", lambda d: (problems.append(f"dialog {d.message}"), d.dismiss()))
        page.goto(own)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


def enliven(page: Any) -> int:
    """Scroll to every chart, so that each becomes a live one; how many there are."""
    drawn = page.query_selector_all(".chart .drawn")
    for chart in drawn:
        chart.scroll_into_view_if_needed()
        page.wait_for_function("chart => 'live' in chart.dataset", arg=chart)
    assert [chart.get_attribute("data-live") for chart in drawn] == ["yes"] * len(drawn)
    assert all(chart.query_selector("svg") for chart in drawn)
    return len(drawn)


@pytest.mark.parametrize("name", ["select", "fuzz", "cover", "attack"])
def test_pages_open_silently_and_their_charts_live(pages: dict[str, Path], opened: Open, name: str) -> None:
    page = opened(pages[name])
    assert enliven(page) >= 2
    assert any(hostile in page.inner_text("body") for hostile in HOSTILE)
    assert page.inner_text("main .verdict").strip()


def test_without_scripts_a_page_shows_the_same(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["fuzz"], java_script_enabled=False)
    charts = page.query_selector_all(".chart")
    assert len(charts) >= 3
    for chart in charts:
        box = chart.query_selector("svg").bounding_box()
        assert box["width"] > 100
        assert box["height"] > 50
        assert chart.query_selector("a.csv")
    assert not page.query_selector(".filter").is_visible()  # what needs a script is not offered


def test_data_of_a_chart_are_saved_without_a_server(pages: dict[str, Path], opened: Open, tmp_path: Path) -> None:
    page = opened(pages["select"])
    with page.expect_download() as download:
        page.click("a[download='class-balance.csv']")
    download.value.save_as(tmp_path / "data.csv")
    with open(tmp_path / "data.csv", newline="") as file:
        heads, *rows = csv.reader(file)
    assert heads == ["class", "of", "share", "inputs"]
    assert {row[0] for row in rows} <= set(HOSTILE)
    assert sum(int(row[3]) for row in rows if row[1] == "the pool") == 24


def test_the_map_shows_the_picture_under_the_pointer(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["fuzz"])
    enliven(page)
    point = page.query_selector("#map .drawn g.mark-symbol.marks path")
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#vg-tooltip-element.visible img")
    tip = page.query_selector("#vg-tooltip-element")
    assert tip.query_selector("img").get_attribute("src").startswith("data:image/png;base64,")
    assert tip.query_selector("img").evaluate("picture => picture.naturalWidth") == 8
    assert any(hostile in tip.inner_text() for hostile in HOSTILE)
    assert "by chance" in page.inner_text("#map")


def test_families_are_found_by_their_words(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["fuzz"])
    rows = page.query_selector_all("#all-families [data-row]")
    words = rows[0].query_selector("td:nth-child(3)").inner_text()
    page.fill("#family-words", words)
    shown = [row for row in rows if row.get_attribute("hidden") is None]
    assert shown
    assert all(words.lower() in row.text_content().lower() for row in shown)
    page.fill("#family-words", "no family has these words")
    assert not [row for row in rows if row.get_attribute("hidden") is None]


def test_light_and_dark_and_paper(pages: dict[str, Path], opened: Open) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = opened(pages["cover"], color_scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        text = page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill")
        assert text == page.evaluate("getComputedStyle(document.body).color")
    assert grounds["light"] != grounds["dark"]
    page = opened(pages["select"])
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every(one => one.open)")
    assert re.match(rb"%PDF-", page.pdf())


def axe_script() -> str:
    """The accessibility checker, where it is installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("accessibility is checked by axe-core: pip install 'neurotest[browser]'")
    return (Path(found.origin).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["select", "fuzz", "cover", "attack"])
def test_nothing_serious_stands_in_anybodys_way(pages: dict[str, Path], opened: Open, name: str, scheme: str) -> None:
    page = opened(pages[name], color_scheme=scheme, bypass_csp=True)
    enliven(page)
    page.evaluate(axe_script())
    violations = page.evaluate("axe.run().then(result => result.violations)")
    assert not [(one["id"], one["nodes"][0]["html"][:200]) for one in violations if one["impact"] in SERIOUS]
