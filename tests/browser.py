"""A browser for tests of pages, and axe-core in it."""

import json
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


NARROW, WIDE = 390, 1280  # CSS pixels
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}


def assert_accessible(page: Any) -> None:
    """Fail with axe's findings on the page as it is: in light and in dark colours, wide and narrow."""
    found = dict[str, None]()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 800})
            found |= dict.fromkeys(f"{scheme}, {width} px: {each}" for each in findings(page))
    assert not found, "\n".join(found)


def findings(page: Any) -> list[str]:
    """A line for each element that breaks a rule: the rule, the element and why."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{rule['id']}: {json.dumps(node['target'])} {node['html'][:200]}\n  {node.get('failureSummary', rule['help'])}"
        for rule in violations
        for node in rule["nodes"]
    ]
