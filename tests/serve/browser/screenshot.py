"""Take the README's picture of the page: `python -m tests.serve.browser.screenshot RUN FILE.png`.

RUN is the one that docs/tutorials/photos.md trains on drawn pictures.
"""

from __future__ import annotations

import sys
import urllib.parse
from pathlib import Path

from ccal.retrieval.run_index import build_index, existing_index
from ccal.runs import Run
from ccal.serve import IndexCollection
from tests.serve.browser.conftest import ARGUMENTS, CHROMIUM
from tests.serve.live import Live


def take(run: Run, file: Path, words: str = "two red boats at sunset") -> None:
    """Search for words on the page of a run, and save what is on the screen."""
    from playwright.sync_api import sync_playwright

    model = run.model()
    index = existing_index(run, model) or build_index(run, model)
    server = Live(IndexCollection(index, model, title="pictures", model_folder=run.path))
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.goto(f"{server.url}/?q={urllib.parse.quote(words)}")
            page.wait_for_selector("#results li img")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=file)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    take(Run.open(sys.argv[1]), Path(sys.argv[2]))
