"""A browser, the server of the page, and the page itself, under close watch."""

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "processes")]

from pages import WAIT, Watch  # noqa: E402

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        reason = "there is no Chromium here: make test-browser installs it"
        pytest.fail(reason) if os.environ.get("DOKL_NO_SKIPS") else pytest.skip(reason)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        made = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def watch(lab):
    made = Watch(lab.path)
    yield made
    made.stop()


@pytest.fixture
def open_page(browser, watch):
    """Opens the page with settings of the browser; at the end all must have been well with it."""
    contexts, trouble, hosts = [], [], set()

    def opened(width=1280, height=900, **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.trouble = trouble
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(watch.address)
        page.wait_for_selector(".node[data-state=up]", timeout=WAIT)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []
    assert hosts == {urlsplit(watch.address).netloc}
