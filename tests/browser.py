"""Chromium without a window, driven by Playwright, for tests of pages: those marked `engine("browser")`."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SECONDS = 60  # of patience with a busy machine


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. While it is open, the thread has an event loop: it belongs into a fixture of a module's scope."""
    if CHROMIUM is None:
        pytest.fail("no Chromium is installed: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@contextmanager
def opened(browser: Any, url: str, **settings: Any) -> Iterator[Any]:
    """A page in a context that has nothing of another one. At the end, anything on the console is a failure.

    `settings`: of the context. `page.complaints`: what the console has.
    """
    context = browser.new_context(**settings)
    context.set_default_timeout(1000 * SECONDS)
    page = context.new_page()
    page.complaints = list[str]()
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert page.complaints == []
