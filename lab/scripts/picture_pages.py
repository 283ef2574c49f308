"""Screenshots of pages for the docs: the head of a page, as small PNG files.

python lab/scripts/picture_pages.py docs/img/report-fuzz.png=RUN/report.html ... [--height 760] [--dark]
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import sync_playwright


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+", help="PICTURE=PAGE")
    parser.add_argument("--height", type=int, default=760)
    parser.add_argument("--section", help="The id of the section to show instead of the head.")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"]
        )
        scheme: Literal["dark", "light"] = "dark" if arguments.dark else "light"
        page = browser.new_page(viewport={"width": 1000, "height": arguments.height}, color_scheme=scheme)
        for pair in arguments.pairs:
            picture, _, file = pair.partition("=")
            page.goto(Path(file).resolve().as_uri())
            part = page.query_selector(f"#{arguments.section}") if arguments.section else None
            if part is not None:
                part.scroll_into_view_if_needed()
            page.wait_for_timeout(3000)
            shot = Image.open(io.BytesIO(part.screenshot() if part is not None else page.screenshot()))
            shot.convert("P", palette=Image.Palette.ADAPTIVE, colors=200).save(picture, optimize=True)
            print(picture, Path(picture).stat().st_size)
        browser.close()


if __name__ == "__main__":
    main()
