"""Screenshots of the served pages for the docs, as small PNG files.

python lab/scripts/picture_served.py label TARGET POOL [--out RUN]    # docs/img/label.png, label-grid.png; POOL has labels
python lab/scripts/picture_served.py serve RUN                        # docs/img/serve.png, serve-fault.png; RUN is a campaign
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import neurotest

PLACE = Path(__file__).parents[2] / "docs" / "img"


def save(page: Any, name: str) -> None:
    page.wait_for_timeout(3000)
    shot = Image.open(io.BytesIO(page.screenshot()))
    shot.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(PLACE / name, optimize=True)
    print(name, (PLACE / name).stat().st_size)


def label(browser: Any, url: str, words: list[str]) -> None:
    labels = neurotest.data(words[1]).labels
    assert labels is not None, "a pool with labels: they are the answers"
    page = browser.new_page(viewport={"width": 1180, "height": 860})
    page.goto(url)
    position = ""
    for _ in range(25):
        figure = page.wait_for_selector(f'#picture[data-position]:not([data-position=""]):not([data-position="{position}"])')
        position = figure.get_attribute("data-position")
        page.keyboard.press(str(labels[int(position)]))
    page.wait_for_selector(f'#picture[data-position]:not([data-position=""]):not([data-position="{position}"])')
    page.wait_for_selector("#left:has-text('between')", timeout=180_000)
    save(page, "label.png")
    page.emulate_media(color_scheme="dark")
    page.click("#many")
    page.wait_for_selector("#cells button")
    name = page.inner_text("#grid-question").split("“")[1].split("”")[0]
    number = [button.strip() for button in page.locator("#classes button").all_text_contents()]
    predicted = next(int(text[0]) for text in number if text[1:].strip() == name)
    for cell in page.locator("#cells button").all():
        position = re.findall(r"inputs/(\d+)/", cell.locator("img").get_attribute("src"))[0]
        if labels[int(position)] != predicted:
            cell.click()
    page.keyboard.press("Enter")
    save(page, "label-grid.png")


def serve(browser: Any, url: str, words: list[str]) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 860})
    page.goto(url)
    page.wait_for_selector("#families button")
    save(page, "serve.png")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 1060, "height": 640})
    page.click("#families button:nth-child(2)")
    page.wait_for_selector("#others button")
    save(page, "serve-fault.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("label", "serve"))
    parser.add_argument("words", nargs="+", help="What `neurotest label` or `neurotest serve` is called with.")
    arguments, options = parser.parse_known_args()
    command = [sys.executable, "-m", "neurotest", arguments.command, *arguments.words, *options, "--json", "--no-browser", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            {"label": label, "serve": serve}[arguments.command](browser, url, arguments.words)
        finally:
            browser.close()
            server.terminate()


if __name__ == "__main__":
    main()
