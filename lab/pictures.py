"""Draws the pictures of README and docs: `run`, in a terminal; `drafter`, in a browser.

    .venv/bin/python -m scripts.real_models --bf16
    .venv/bin/python -m lab.pictures run drafter [--models FOLDER] [--save]

The pairs run on this machine. `drafter` needs Chromium and Playwright. The pictures go to `.cache/results/`, and to
`docs/pictures/` only with `--save`. Texts are those of temperature 0 or of a seed. Times differ from run to run, and
with them which tokens were drafted.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

from lab.benchmarks.harness.models import drafter_serve
from lab.benchmarks.harness.report import UNSAVED, need
from scripts.real_models import BF16, DRAFT, FOLDER, TARGET
from specpair.child_processes.serving import verifier
from tests.browser import chromium, opened
from tests.paths import ROOT
from tests.terminal.pseudo import terminal

if TYPE_CHECKING:
    from pyte.screens import Char

COLOURS = 128  # of a PNG file, which is more than a page of text and lines has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="+", choices=["run", "drafter"])
    parser.add_argument("--models", type=Path, default=ROOT / FOLDER, help=f"default: {FOLDER}")
    parser.add_argument("--save", action="store_true", help="write to docs/pictures/ (default: to .cache/results/)")
    options = parser.parse_args()
    to = ROOT / "docs" / "pictures" if options.save else UNSAVED
    to.mkdir(parents=True, exist_ok=True)
    for each in options.pictures:
        if each == "run":
            _run(to, options.models)
        else:
            need("playwright", "matplotlib", "PIL")
            with chromium() as browser:
                _drafter(browser, to, options.models)
    print(f"written to {to}", file=sys.stderr)


def _save_png(png: bytes, path: Path) -> None:
    """Write a screenshot to a file with few colours. Needs Pillow, which matplotlib installs."""
    from PIL import Image

    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


# What a text leaves on a terminal, with its colours. The target is in bfloat16, whose steps memory bounds.

COLUMNS, LINES = 100, 60
PROMPT = "Write a Python class for a bank account, with type hints and short docstrings. Only the code."
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the SVG would load fonts from another host


def _run(to: Path, models: Path) -> None:
    need("pyte")
    if missing := [name for name in (BF16, DRAFT.name) if not (models / name).is_file()]:
        get = f"{sys.executable} -m scripts.real_models {models} --bf16"
        sys.exit(f"not in {models}: {', '.join(missing)}; get them with: {get}")
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    what = ["--prompt", PROMPT, "--chat", "--max-tokens", "160", "--baseline"]
    with verifier(model=models / BF16, context=1024, slots=1) as server:
        flags = ["--verifier", server.url, "--draft-model", str(models / DRAFT.name), *what]
        with terminal([sys.executable, "-m", "drafter_client", *flags], COLUMNS) as shown:
            if status := shown.wait():
                raise SystemExit(f"{shown.text}\nthe drafter ended with status {status}")
            pyte.Stream(screen).feed(shown.raw)
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(LINES)]
    lines = [
        Text.assemble(*(("".join(cell.data for cell in cells), style) for style, cells in groupby(row, _style)))
        for row in rows
    ]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=StringIO())
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True)
    picture = console.export_svg(title="drafter --prompt 'Write a Python class …' --chat --baseline")
    (to / "run.svg").write_text(_FONT.sub("", picture), encoding="utf-8")


def _style(cell: "Char") -> Style:
    bright, colour = cell.fg.startswith("bright"), cell.fg.removeprefix("bright")
    colour = "yellow" if colour == "brown" else colour  # pyte's name of the colour 3
    if re.fullmatch("[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    elif bright:
        colour = f"bright_{colour}"
    return Style(
        color=None if colour == "default" else colour, bold=cell.bold, italic=cell.italics, underline=cell.underscore
    )


WIDE = {"width": 1280, "height": 800}

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
            _save_png(png, to / f"{name}.png")


def _states(browser: Any, url: str) -> Iterator[tuple[str, bytes]]:
    with _page(browser, url) as page:
        _open(page, PANEL)
        page.get_by_role("button", name="Sources").click()
        _ask(page, QUESTION)
        page.locator(".tokens .token.recovered").first.hover()
        yield "page-sources", page.screenshot()
    with _page(browser, url) as page:
        _open(page, TOOLS)
        page.get_by_role("button", name="Example").click()
        page.get_by_label("Tools, as OpenAI's API defines them").evaluate("field => field.scrollTop = 0")
        page.fill("#input", TOOL_QUESTION)
        page.press("#input", "Enter")
        page.get_by_role("status").filter(has_text="tools: write what they return").wait_for()
        yield "page-tools", page.screenshot()
    with _page(browser, url) as page:
        _open(page, NETWORK)
        page.locator("#network .node").nth(1).wait_for()
        _ask(page, "Say hello.")
        yield "page-network", page.screenshot()


@contextmanager
def _page(browser: Any, url: str) -> Iterator[Any]:
    """The page, with settings for the same text each time."""
    with opened(browser, url, viewport=WIDE, color_scheme="light") as page:
        page.set_default_timeout(PATIENCE)
        page.evaluate("given => localStorage.setItem('specpair.settings', given)", SETTINGS)
        page.reload()
        page.locator("#model").filter(has_text="tokens of context").wait_for()
        yield page


def _open(page: Any, panel: str) -> None:
    page.locator("summary", has_text=panel).click()


def _ask(page: Any, text: str) -> None:
    """Request a text; once the panel, if open, shows its end, show its beginning."""
    page.fill("#input", text)
    page.press("#input", "Enter")
    page.get_by_role("status").filter(has_text="The answer is complete.").wait_for()
    page.locator("#messages").evaluate("list => list.scrollTop = 0")
    if page.locator("#live[open]").count():
        page.locator("#condition").filter(has_text="0 texts under way").wait_for()


if __name__ == "__main__":
    main()
