"""Draws verifier-page.png: the verifier's page in a browser, while drafters and other clients use the verifier.

    .venv/bin/python -m lab.pictures.verifier_page [--save]    # needs Chromium, Playwright, matplotlib

The pair is the one that ships, on this machine. The picture goes to `.cache/results/`, and to `docs/pictures/` only
with `--save`.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from drafter_client import Mode, Options, Pair
from lab.benchmarks.harness.report import need
from lab.pictures.output import folder_of, parser_of, save_png
from specpair.child_processes.serving import verifier
from tests.browser import chromium

SECONDS = 70  # of load before the picture: the page shows a minute
PROMPTS = ("def main(", "class Queue:\n", "import os\nimport sys\n\n" * 12 + "def walk(top")
SIZE = {"width": 1280, "height": 800}  # of the window; the picture has the whole page
TOKENS = 400  # of a text


def main() -> None:
    options = parser_of(__doc__).parse_args()
    need("playwright", "PIL")
    path = folder_of(options) / "verifier-page.png"
    with verifier(draft_backend="ngram", slots=8) as server, chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        page.goto(server.url)
        page.locator("#state.ready").wait_for()
        with texts(server.url):
            page.wait_for_timeout(1000 * SECONDS)
            save_png(page.screenshot(full_page=True), path)
    print(f"written to {path}", file=sys.stderr)


@contextmanager
def texts(url: str) -> Iterator[None]:
    """While the block runs, two drafters and two clients without a draft model have texts written."""
    over = threading.Event()
    threads = [threading.Thread(target=_draft, args=(url, seed, over)) for seed in range(2)]
    threads += [threading.Thread(target=_ask, args=(url, mode, over)) for mode in ("target", "fused")]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _draft(url: str, seed: int, over: threading.Event) -> None:
    with Pair(url) as pair:
        while not over.is_set():
            options = Options(mode=Mode.REMOTE, draft_n=4, max_tokens=TOKENS, temperature=0.7, seed=seed)
            for _ in pair.generate(PROMPTS[seed % len(PROMPTS)], options):
                if over.is_set():
                    break
            seed += 2


def _ask(url: str, mode: str, over: threading.Event) -> None:
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as http:
        seed = 0
        while not over.is_set():
            body: dict[str, Any] = {"max_tokens": TOKENS, "mode": mode, "temperature": 0.7, "seed": seed}
            http.post("/generate", json=body | {"prompt": PROMPTS[seed % len(PROMPTS)]}).raise_for_status()
            seed += 1


if __name__ == "__main__":
    main()
