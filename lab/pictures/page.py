"""Draws the pictures of docs/page.md: the drafter's page in a browser, with a real pair.

    .venv/bin/python -m scripts.real_models FOLDER
    .venv/bin/python -m lab.pictures.page FOLDER [--save]    # needs Chromium, Playwright and matplotlib

The pair runs on this machine. The pictures go to `.cache/results/`, and to `docs/pictures/` only with `--save`. Texts
are those of temperature 0; times, and with them which tokens were drafted, are another time's.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.benchmarks.endpoint.services import drafter_serve
from lab.benchmarks.harness.report import need
from lab.pictures.output import folder_of, parser_of, save_png
from scripts import real_models
from specpair.child_processes.serving import verifier
from tests.browser import chromium, opened

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 760}
PATIENCE = 600_000  # milliseconds until an answer is complete
QUESTION = "Write a Python function that counts the words of a text file, and say in two sentences how it works."
TOOL_QUESTION = "What is the weather in Paris?"
PANEL, TOOLS, NETWORK = "What the pair does", "Tools and JSON", "Network"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="where `python -m scripts.real_models` put the models")
    options = parser.parse_args()
    need("playwright", "matplotlib")
    to = folder_of(options)
    target, draft = (options.folder / each.name for each in (real_models.TARGET, real_models.DRAFT))
    with (
        verifier(model=target, context=4096, slots=2, threads=1, insecure="yes") as server,
        drafter_serve(server.url, 1, 4, draft_model=draft, draft_n=4, branches=1, lockstep=True) as service,
        chromium() as browser,
    ):
        for name, png in _pages(browser, service.url):
            save_png(png, to / f"{name}.png")
    print(f"written to {to}", file=sys.stderr)


def _pages(browser: Any, url: str) -> Iterator[tuple[str, bytes]]:
    """The drafter's page in several states."""
    with _page(browser, url, WIDE, "light") as page:
        _open(page, PANEL)
        page.get_by_role("button", name="Sources").click()
        _ask(page, QUESTION)
        _settle(page)
        page.locator(".tokens .token.recovered").first.hover()
        yield "page-sources", page.screenshot()
    with _page(browser, url, WIDE, "dark") as page:
        _open(page, PANEL)
        _ask(page, QUESTION)
        _settle(page)
        yield "page-dark", page.screenshot()
    with _page(browser, url, NARROW, "light") as page:
        _ask(page, QUESTION)
        _settle(page)
        yield "page-narrow", page.screenshot()
    with _page(browser, url, WIDE, "light") as page:
        _open(page, TOOLS)
        page.get_by_role("button", name="Example").click()
        page.get_by_label("Tools, as OpenAI's API defines them").evaluate("field => field.scrollTop = 0")
        page.fill("#input", TOOL_QUESTION)
        page.press("#input", "Enter")
        page.get_by_role("status").filter(has_text="tools: write what they return").wait_for()
        yield "page-tools", page.screenshot()
    with _page(browser, url, WIDE, "light") as page:
        _open(page, NETWORK)
        page.locator("#network .node").nth(1).wait_for()
        _ask(page, "Say hello.")
        yield "page-network", page.screenshot()


@contextmanager
def _page(browser: Any, url: str, size: dict[str, int], scheme: str) -> Iterator[Any]:
    """The page with settings that give the same text each time."""
    with opened(browser, url, viewport=size, color_scheme=scheme) as page:
        settings = '{"temperature": 0, "max_tokens": 320, "mode": "remote", "token_details": "decisions"}'
        page.set_default_timeout(PATIENCE)
        page.evaluate("given => localStorage.setItem('specpair.settings', given)", settings)
        page.reload()
        page.locator("#model").filter(has_text="tokens of context").wait_for()
        yield page


def _open(page: Any, panel: str) -> None:
    page.locator("summary", has_text=panel).click()


def _ask(page: Any, text: str) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")
    page.get_by_role("status").filter(has_text="The answer is complete.").wait_for()


def _settle(page: Any) -> None:
    """From the beginning, and once the panel, where it is open, says that the text has ended."""
    page.locator("#messages").evaluate("list => list.scrollTop = 0")
    if page.locator("#live[open]").count():
        page.locator("#condition").filter(has_text="0 texts under way").wait_for()


if __name__ == "__main__":
    main()
