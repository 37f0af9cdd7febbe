"""What a text loses beside an open page: the same texts by turns, without a reader, with one, and with the page."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from lab.bench.statistics.bootstrap import Quotients, paired_ratio
from lab.benchmarks.endpoint.services import drafter_serve, paced
from lab.benchmarks.harness.models import held_out_prompts
from lab.benchmarks.harness.processor_time import used_by
from specpair.child_processes.serving import Server
from tests.browser import opened

ALONE, READER, OPEN, ASKS = "no reader", "a mere reader of /events", "the page open", "the page asks"
_DRAFTS = 4  # of each request
# It says when it has had the first event.
_READER = """import httpx, sys
with httpx.stream("GET", sys.argv[1], timeout=None) as stream:
    for number, _ in enumerate(stream.iter_raw()):
        number or print(flush=True)
"""
_TIMINGS = """() => {
    const names = Object.keys(localStorage).filter((each) => each.startsWith("specpair.chat."));
    return JSON.parse(localStorage.getItem(names[0])).messages.at(-1).timings;
}"""


@dataclass(frozen=True, slots=True)
class Text:
    """`seconds`: from the first token to the last, as the service says it. `service`, `browser`: CPU seconds."""

    tokens: int
    seconds: float
    service: float
    browser: float


def measured(browser: Any, texts: int, tokens: int) -> dict[str, list[Text]]:
    """`texts` texts in each of the ways, by turns."""
    prompts = held_out_prompts(texts)
    found: dict[str, list[Text]] = {way: [] for way in (ALONE, READER, OPEN, ASKS)}
    with (
        paced(2) as verifier,
        drafter_serve(verifier.url, 1, 4, mode="remote", lockstep=True, draft_n=_DRAFTS) as service,
        httpx.Client(timeout=600) as http,
    ):
        for number in range(-1, texts):  # the first one of each way warms up
            ways = list(found)
            random.Random(number).shuffle(ways)
            for way in ways:
                asked = {"seed": max(0, number), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
                text = prompts[number % len(prompts)]
                done = _one(way, browser, service, http, asked, str(text))
                if number >= 0:
                    found[way].append(done)
    return found


def compared(found: Mapping[str, Sequence[Text]]) -> Iterator[str]:
    """A line for each way: its rate, and how many times that without a reader it is."""
    base = _quotients(found[ALONE])
    for way, texts in found.items():
        rate = sum(each.tokens for each in texts) / sum(each.seconds for each in texts)
        service = sum(each.service for each in texts) / len(texts)
        shown = sum(each.browser for each in texts) / len(texts)
        told = f"{way}: {rate:.1f} tokens/s; CPU a text: drafter serve {service:.2f} s, browser {shown:.2f} s"
        interval = paired_ratio(_quotients(texts), base) if way != ALONE else None
        if interval is not None and interval.low is not None:
            told += f"; {interval.ratio:.3f} times as fast ({interval.low:.3f} to {interval.high:.3f})"
        yield told


def _quotients(texts: Sequence[Text]) -> Quotients:
    return Quotients([each.tokens for each in texts], [each.seconds for each in texts])


def _one(way: str, browser: Any, service: Server, http: httpx.Client, asked: Mapping[str, Any], prompt: str) -> Text:
    with _watched(way, browser, service.url, asked) as page:
        before = used_by(service.process.pid), _cpu(browser)
        timings = _by_page(page, prompt) if way == ASKS else _by_program(http, service.url, asked, prompt)
        used = used_by(service.process.pid) - before[0], _cpu(browser) - before[1]
    return Text(timings["predicted_n"], timings["predicted_ms"] / 1e3, *used)


@contextmanager
def _watched(way: str, browser: Any, url: str, settings: Mapping[str, Any]) -> Iterator[Any]:
    """Who watches in this way, while the block runs."""
    if way == ALONE:
        yield None
    elif way == READER:
        command = [sys.executable, "-c", _READER, f"{url}/events"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            yield None
            reader.kill()
    else:
        with opened(browser, url, viewport={"width": 1280, "height": 800}) as page:
            page.evaluate("given => localStorage.setItem('specpair.settings', given)", json.dumps(settings))
            page.evaluate("localStorage.setItem('specpair.sources', 'shown')")
            page.reload()
            page.get_by_text("What the pair does").click()
            page.locator("#condition").filter(has_text="ready").wait_for()
            yield page
            page.complaints.clear()  # the refusal of a chat by a model without a template is on the console


def _by_page(page: Any, prompt: str) -> Any:
    page.fill("#input", prompt)
    page.press("#input", "Enter")
    page.get_by_role("status").filter(has_text="The answer is complete.").wait_for()
    timings = page.evaluate(_TIMINGS)
    if timings is None:
        raise RuntimeError(f"the page has no timings: {page.locator('article').all_inner_texts()}")
    return timings


def _by_program(http: httpx.Client, url: str, asked: Mapping[str, Any], prompt: str) -> Any:
    timings = None
    body = {"prompt": prompt, "stream": True, "token_details": "sources", **asked}
    with http.stream("POST", f"{url}/v1/completions", json=body) as stream:
        stream.raise_for_status()
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                timings = json.loads(line[6:]).get("timings") or timings
    return timings


def _cpu(browser: Any) -> float:
    """CPU seconds of all of the browser's processes so far, those that have ended left out."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return float(sum(each["cpuTime"] for each in processes))
