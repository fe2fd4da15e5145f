"""Pages in a real browser: the Chromium of the system, without a window."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def opened(path: Path, scheme: str = "light"):
    """Yields a page as one of Playwright. At the end, it has requested no other file and has logged nothing.

    scheme: of its colors, light or dark.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "install Chromium: the tests of pages that are marked full need it"
    requests = []
    messages = []
    with playwright.sync_playwright() as driver:
        # Chromium does not start as root with its sandbox.
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(path.resolve().as_uri())
        yield page
        browser.close()
    assert requests == [path.resolve().as_uri()]
    assert not messages
