"""Draws the pictures of pages in a browser, for docs/page.md, verifier-page.md, traces.md and simulator.md.

    .venv/bin/python -m lab.pictures.pages verifier report simulator [--save]    # needs Chromium and Playwright
    .venv/bin/python -m scripts.real_models
    .venv/bin/python -m lab.pictures.pages drafter [--models FOLDER] [--save]    # with the real pair in that folder

The pairs run on this machine; but for `drafter` the one that ships. The pictures go to `.cache/results/`, and to
`docs/pictures/` only with `--save`. Texts are those of temperature 0 or of a seed; times, and with them which tokens
were drafted, are another time's.
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from drafter_client import Mode, Options, Pair, TraceFolder
from lab.benchmarks.harness.models import drafter_serve
from lab.benchmarks.harness.report import need
from lab.pictures.output import folder_of, parser_of, save_png
from lab.report.page import page as report_page
from lab.report.reader import read_runs
from lab.simulator import command_line
from scripts.real_models import DRAFT, FOLDER, TARGET
from specpair.child_processes.serving import verifier
from tests.browser import chromium, opened
from tests.paths import ROOT

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 760}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("pages", nargs="+", choices=[*PAGES])
    parser.add_argument("--models", type=Path, default=ROOT / FOLDER, help=f"default: {FOLDER}")
    options = parser.parse_args()
    need("playwright", "matplotlib", "PIL")
    to = folder_of(options)
    with chromium() as browser:
        for each in options.pages:
            PAGES[each](browser, to, options.models)
    print(f"written to {to}", file=sys.stderr)


# The drafter's page, in several states.

SETTINGS = '{"temperature": 0, "max_tokens": 320, "mode": "remote", "token_details": "decisions"}'
PATIENCE = 600_000  # milliseconds until an answer is complete
QUESTION = "Write a Python function that counts the words of a text file, and say in two sentences how it works."
TOOL_QUESTION = "What is the weather in Paris?"
PANEL, TOOLS, NETWORK = "What the pair does", "Tools and JSON", "Network"


def _drafter(browser: Any, to: Path, models: Path) -> None:
    how = {"draft_model": models / DRAFT.name, "draft_n": 4, "branches": 1, "lockstep": True}
    with (
        verifier(model=models / TARGET.name, context=4096, slots=2, threads=1, insecure="yes") as server,
        drafter_serve(server.url, 1, 4, **how) as service,
    ):
        for name, png in _states(browser, service.url):
            save_png(png, to / f"{name}.png")


def _states(browser: Any, url: str) -> Iterator[tuple[str, bytes]]:
    with _page(browser, url, WIDE, "light") as page:
        _open(page, PANEL)
        page.get_by_role("button", name="Sources").click()
        _ask(page, QUESTION)
        page.locator(".tokens .token.recovered").first.hover()
        yield "page-sources", page.screenshot()
    with _page(browser, url, WIDE, "dark") as page:
        _open(page, PANEL)
        _ask(page, QUESTION)
        yield "page-dark", page.screenshot()
    with _page(browser, url, NARROW, "light") as page:
        _ask(page, QUESTION)
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
        page.set_default_timeout(PATIENCE)
        page.evaluate("given => localStorage.setItem('specpair.settings', given)", SETTINGS)
        page.reload()
        page.locator("#model").filter(has_text="tokens of context").wait_for()
        yield page


def _open(page: Any, panel: str) -> None:
    page.locator("summary", has_text=panel).click()


def _ask(page: Any, text: str) -> None:
    """Have a text written; show its beginning, once the panel, where it is open, says that it has ended."""
    page.fill("#input", text)
    page.press("#input", "Enter")
    page.get_by_role("status").filter(has_text="The answer is complete.").wait_for()
    page.locator("#messages").evaluate("list => list.scrollTop = 0")
    if page.locator("#live[open]").count():
        page.locator("#condition").filter(has_text="0 texts under way").wait_for()


# The verifier's page, while two drafters and two clients without a draft model have texts written.

SECONDS = 70  # of load before the picture: the page shows a minute
PROMPTS = ("def main(", "class Queue:\n", "import os\nimport sys\n\n" * 12 + "def walk(top")
TOKENS = 400  # of a text


def _verifier(browser: Any, to: Path, _: Path) -> None:
    over = threading.Event()
    with verifier(draft_backend="ngram", slots=8) as server:
        threads = [threading.Thread(target=_draft, args=(server.url, seed, over)) for seed in range(2)]
        threads += [threading.Thread(target=_request, args=(server.url, mode, over)) for mode in ("target", "fused")]
        page = browser.new_page(viewport=WIDE)
        page.goto(server.url)
        page.locator("#state.ready").wait_for()
        for thread in threads:
            thread.start()
        try:
            page.wait_for_timeout(1000 * SECONDS)
            save_png(page.screenshot(full_page=True), to / "verifier-page.png")
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


def _request(url: str, mode: str, over: threading.Event) -> None:
    body: dict[str, Any] = {"max_tokens": TOKENS, "mode": mode, "temperature": 0.7}
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as http:
        seed = 0
        while not over.is_set():
            given = body | {"seed": seed, "prompt": PROMPTS[seed % len(PROMPTS)]}
            http.post("/generate", json=given).raise_for_status()
            seed += 1


# The report of a recorded run.

RECORDED = "import os\nimport unittest\n\n\nclass PathTests(unittest.TestCase):\n    def test_join(self):\n"
OPTIONS = Options(mode=Mode.REMOTE, draft_n=4, max_tokens=160, temperature=0.6, seed=3, lockstep=True, explain=True)
ROUND, ZOOM = 12, 3  # the round that is chosen; steps


def _report(browser: Any, to: Path, _: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        with verifier() as server, Pair(server.url, observer=TraceFolder(folder, text=True)) as pair:
            pair.generate(RECORDED, OPTIONS).read()
        report.write_text(report_page(read_runs(Path(folder)), text=True), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1100, "height": 545})  # which begins with the timeline
        page.goto(report.as_uri())
        page.locator(".window").focus()
        for key in ("Home", *["ArrowRight"] * (ROUND - 1), *["+"] * ZOOM):
            page.keyboard.press(key)
        page.get_by_text("Timeline", exact=True).evaluate("heading => heading.scrollIntoView()")
        page.locator(".window rect.chosen").wait_for()
        page.screenshot(path=to / "run-report.png")


# The page of a run of the simulator's example. The same seed gives the same run.

EXAMPLE = ROOT / "lab" / "simulator" / "example.yaml"
CHANGES = ("--set", "sim_time_ms=30000", "--set", "replications=3")


def _simulator(browser: Any, to: Path, _: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        if command_line.run(["run", str(EXAMPLE), "--output", str(folder), *CHANGES]):
            sys.exit("the run failed")
        page = browser.new_page(viewport={"width": 1150, "height": 1560})  # the beginning of the page
        page.goto((folder / "report.html").as_uri())
        page.screenshot(path=to / "simulator-page.png")


PAGES: dict[str, Callable[[Any, Path, Path], None]] = {
    "drafter": _drafter,
    "verifier": _verifier,
    "report": _report,
    "simulator": _simulator,
}

if __name__ == "__main__":
    main()
