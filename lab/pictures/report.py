"""Draws run-report.png: the HTML report of a recorded run in a browser.

    .venv/bin/python -m lab.pictures.report [--save]    # needs Chromium and Playwright

The pair is the one that ships, on this machine. The picture goes to `.cache/results/`, and to `docs/pictures/` only
with `--save`.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from drafter_client import Mode, Options, Pair, TraceFolder
from lab.benchmarks.harness.report import need
from lab.pictures.output import folder_of, parser_of
from lab.report.page import page
from lab.report.reader import read_runs
from specpair.child_processes.serving import verifier
from tests.browser import chromium

PROMPT = "import os\nimport unittest\n\n\nclass PathTests(unittest.TestCase):\n    def test_join(self):\n"
OPTIONS = Options(mode=Mode.REMOTE, draft_n=4, max_tokens=160, temperature=0.6, seed=3, lockstep=True, explain=True)
SIZE = {"width": 1100, "height": 545}  # of the window, which begins with the timeline
ROUND = 12  # that is chosen
ZOOM = 3  # steps


def main() -> None:
    options = parser_of(__doc__).parse_args()
    need("playwright")
    path = folder_of(options) / "run-report.png"
    with TemporaryDirectory() as folder, chromium() as browser:
        report = Path(folder) / "report.html"
        with verifier() as server, Pair(server.url, observer=TraceFolder(folder, text=True)) as pair:
            pair.generate(PROMPT, OPTIONS).read()
        report.write_text(page(read_runs(Path(folder)), text=True), encoding="utf-8")
        shown = browser.new_page(viewport=SIZE)
        shown.goto(report.as_uri())
        shown.locator(".window").focus()
        for key in ("Home", *["ArrowRight"] * (ROUND - 1), *["+"] * ZOOM):
            shown.keyboard.press(key)
        shown.get_by_text("Timeline", exact=True).evaluate("heading => heading.scrollIntoView()")
        shown.locator(".window rect.chosen").wait_for()
        shown.screenshot(path=path)
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
