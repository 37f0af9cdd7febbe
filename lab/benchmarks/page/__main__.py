"""What the page of `drafter serve` costs: its weight, its first paint, its frames, and what a text loses beside it.

Weight: what Chromium loads for the page, as it goes over the wire, and unpacked. First paint: in a fresh context each
time, from a stand-in of the service in a process of its own, over loopback. Frames: answers of 5,000 tokens come from
the stand-in at `--pace` tokens a second; a task of the page's main thread, layout and paint included, is what a frame
waits for; times are Chromium's own trace. Cost: a verifier paced to 25 ms a step, the shipped draft model in `drafter
serve` on one thread, in mode remote, in lockstep with drafts of 4 tokens, so that a text takes the same rounds each
time. The same texts by turns: asked for by a program without a reader of `GET /events`; with a mere reader, a process
that throws the events away: the service's own cost; with the page open, its panel What the pair does, too: the
browser's processor time on the same machine is in it; and asked for by it, sources shown.
Times are the service's, from the first token on.

    python -m lab.benchmarks.page --parts weight paint frames    # needs requirements/browser.txt, and Chromium
    python -m lab.benchmarks.page --parts cost
"""

import argparse
from typing import Any

import httpx

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.page import cost, frames
from specpair.child_processes.serving import serve
from specpair.quantile import quantile
from tests.browser import chromium, opened

PARTS = ["weight", "paint", "frames", "cost"]
FLAGS = {"parts": PARTS, "contexts": 20, "pace": 1000, "texts": 24, "tokens": 160}
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    options = options_of(__doc__, FLAGS, "playwright")
    report = Report("page", options, "page_cost" if options.parts == ["cost"] else "page")
    with chromium() as browser:
        report.line(f"# Chromium {browser.version}")
        with serve("lab.benchmarks.page.stand_in:stand_in") as served:
            if "weight" in options.parts:
                _weight(report, browser, served.url)
            if "paint" in options.parts:
                _paint(report, options, browser, served.url)
            if "frames" in options.parts:
                _frames(report, options, browser, served.url)
        if "cost" in options.parts:
            report.line(*cost.compared(cost.measured(browser, options.texts, options.tokens)))
    report.save()


def _weight(report: Report, browser: Any, url: str) -> None:
    files = list[Any]()
    with opened(browser, "about:blank") as page:
        page.on("response", lambda response: files.append(response.request))
        page.goto(url, wait_until="networkidle")
        packed = sum(each.sizes()["responseBodySize"] for each in files)
        heads = sum(each.sizes()["responseHeadersSize"] for each in files)
    with httpx.Client(headers={"Accept-Encoding": "identity"}) as http:
        whole = sum(len(http.get(each.url).content) for each in files)
    report.line(
        f"weight: {len(files)} files, {packed:,} bytes by gzip and {heads:,} of headers; unpacked {whole:,} bytes"
    )


def _paint(report: Report, options: argparse.Namespace, browser: Any, url: str) -> None:
    times = []
    for _ in range(options.contexts):
        with opened(browser, url) as page:
            page.wait_for_function(f"{_PAINT} !== undefined")
            times.append(page.evaluate(_PAINT))
    middle = quantile(times, 0.5)
    report.line(f"first paint of {len(times)} fresh contexts: median {middle:.0f} ms, max {max(times):.0f} ms")


def _frames(report: Report, options: argparse.Namespace, browser: Any, url: str) -> None:
    report.line(f"frames: answers of 5,000 tokens, {options.pace} tokens a second")
    for name, found in [*frames.streamed(browser, url, options.pace), *frames.at_once(browser, url)]:
        report.line(f"{name}: {found}")


if __name__ == "__main__":
    main()
