"""How large the page of a run is, and how long a browser works until it can be used.

    python lab/scripts/measure_pages.py RUN [--repeats 5]      # a Markdown table, for docs/_results.py

Needs playwright and Chromium (CHROMIUM names one). Seconds of work are processor time of the browser's process for the
page, and hold on a busy machine, too; seconds on the clock are of this machine as it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from neurotest.report import write_report
from neurotest.runs.store import Run

ALL = "[...document.querySelectorAll('.chart .drawn')].every(one => one.dataset.live === 'yes')"


def opened(browser: Browser, page_file: Path) -> dict[str, float]:
    """One visit: until the page is there, until its first chart answers to the pointer, and after all of them do."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    session = browser.new_browser_cdp_session()

    def processor() -> float:
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(float(one["cpuTime"]) for one in processes if one["type"] == "renderer")

    before = processor()

    def worked() -> float:
        return processor() - before

    began = time.perf_counter()
    page.goto(page_file.resolve().as_uri())
    numbers = {"until it can be read": time.perf_counter() - began, "until it can be read, work": worked()}
    first = page.query_selector(".chart .drawn")
    assert first is not None
    first.scroll_into_view_if_needed()
    page.wait_for_function("chart => chart.dataset.live === 'yes'", arg=first, timeout=600_000)
    numbers |= {"until the first chart answers": time.perf_counter() - began, "until the first chart answers, work": worked()}
    for chart in page.query_selector_all(".chart .drawn"):
        chart.scroll_into_view_if_needed()
        page.wait_for_timeout(50)
    page.wait_for_function(ALL, timeout=600_000)
    numbers |= {"until all charts answer, work": worked()}
    context.close()
    return numbers


def measure(run_path: Path, repeats: int) -> list[dict[str, str]]:
    with Run.open(run_path) as run:
        faults = run["summary"]["faults"]
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        page = write_report(run_path, Path(place) / "page.html", layout="tsne")
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"]
        )
        visits = [opened(browser, page) for _ in range(repeats)]
        browser.close()
        size = f"{page.stat().st_size / 1e6:.2f}"
        rows = [
            {"what": what, "value": value, "least": "", "most": ""}
            for what, value in (("faults", f"{faults:,}"), ("megabytes", size))
        ]
    for name in visits[0]:
        times = [visit[name] for visit in visits]
        numbers = {"value": statistics.median(times), "least": min(times), "most": max(times)}
        rows.append({"what": f"seconds {name}", **{key: f"{number:.2f}" for key, number in numbers.items()}})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print("| what | median | least | most |\n| --- | --- | --- | --- |")
    for row in measure(arguments.run, arguments.repeats):
        print(f"| {row['what']} | {' | '.join(row[key] for key in ('value', 'least', 'most'))} |")
