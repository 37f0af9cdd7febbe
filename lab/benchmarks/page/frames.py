"""How long the page keeps its main thread from a frame, by Chromium's own trace."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.benchmarks.page.texts import ANSWERS
from specpair.quantile import quantile
from tests.browser import opened

LONG = 50.0  # milliseconds: a task beyond it is felt
_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel", "__metadata"]
_COMPLETE = "The answer is complete."
_HISTORY = 20  # answers
_REST = 400  # milliseconds in which nothing has to be drawn any more
# Frames as the page itself sees them: the times between them.
_WATCH = """() => {
    const times = (window.frameTimes = []);
    const note = (now) => { times.push(now); requestAnimationFrame(note); };
    requestAnimationFrame(note);
}"""
_GAPS = "window.frameTimes.slice(1).map((time, at) => time - window.frameTimes[at])"
_KEEP = """(answers) => {
    const messages = answers.flatMap((content) => [{ role: "user", content: "go on" }, { role: "assistant", content }]);
    const chat = { id: "1-2-3-4", changed: Date.now(), settings: {}, messages };
    localStorage.setItem("specpair.chat.1-2-3-4", JSON.stringify(chat));
}"""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the page's main thread: milliseconds, and those of the processor, without those that others took."""

    took: float
    processor: float


@dataclass(frozen=True, slots=True)
class Frames:
    """`gaps`: milliseconds from one frame to the next; none where the page was loaded meanwhile."""

    tasks: Sequence[Task]
    gaps: Sequence[float]

    def __str__(self) -> str:
        longest, most = max(each.took for each in self.tasks), max(each.processor for each in self.tasks)
        told = f"longest task {longest:.0f} ms, most processor time of one {most:.0f} ms"
        told += f", {sum(each.took > LONG for each in self.tasks)} of them beyond {LONG:.0f} ms"
        told += f", {sum(each.took for each in self.tasks) / 1e3:.2f} s in all"
        if not self.gaps:
            return told
        return f"{told}; frames come after p99 {quantile(self.gaps, 0.99):.0f}, max {max(self.gaps):.0f} ms"


def streamed(browser: Any, url: str, pace: int) -> Iterator[tuple[str, Frames]]:
    """Each answer as it is written, in either view, and as it is switched to the other view and back."""
    for view in ("Markdown", "sources"):
        for name in ANSWERS:
            with opened(browser, url, viewport={"width": 1280, "height": 800}) as page:
                switch = page.get_by_role("button", name="Sources")
                if view == "sources":
                    switch.click()
                yield f"{view}, {name}, written", traced(browser, page, _written(page, pace, name))
                for turn in ("the other view", "back"):
                    yield f"{view}, {name}, {turn}", traced(browser, page, switch.click)


def at_once(browser: Any, url: str) -> Iterator[tuple[str, Frames]]:
    """An answer whose tokens come all at once, and a conversation of many answers, which is opened."""
    with opened(browser, url, viewport={"width": 1280, "height": 800}) as page:
        yield "Markdown, mixed, at once", traced(browser, page, _written(page, 0, "mixed"))
        page.get_by_role("button", name="Sources").click()
        yield "sources, mixed, at once", traced(browser, page, _written(page, 0, "mixed"))
        texts = list(map("".join, ANSWERS.values()))
        page.evaluate(_KEEP, [texts[number % len(texts)] for number in range(_HISTORY)])
        yield f"{_HISTORY} answers, opened", traced(browser, page, page.reload, rest=4000)
        yield "a further one written below", traced(browser, page, _written(page, 500, "mixed"))


def traced(browser: Any, page: Any, act: Callable[[], object], rest: int = _REST) -> Frames:
    """What `act` and `rest` milliseconds behind it take."""
    page.evaluate(_WATCH)
    browser.start_tracing(page=page, categories=_CATEGORIES)
    act()
    page.wait_for_timeout(rest)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    gaps = page.evaluate("window.frameTimes !== undefined") and page.evaluate(_GAPS)
    return Frames(_tasks(events), gaps or [])


def _written(page: Any, pace: int, name: str) -> Callable[[], None]:
    def write() -> None:
        page.fill("#input", f"{pace} {name}")
        page.press("#input", "Enter")
        page.get_by_role("status").filter(has_text=_COMPLETE).wait_for()

    return write


def _tasks(events: Sequence[Any]) -> list[Task]:
    """The tasks of the busiest main thread of a page: another one is Chromium's spare."""
    name = "thread_name"
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each.get("name") == name and each["args"]["name"] == "CrRendererMain"
    }
    by_thread = defaultdict[tuple[int, int], list[Task]](list)
    for each in events:
        if each.get("name") == "RunTask" and each.get("ph") == "X" and (each["pid"], each["tid"]) in mains:
            by_thread[each["pid"], each["tid"]].append(Task(each["dur"] / 1e3, each.get("tdur", 0) / 1e3))
    return max(by_thread.values(), key=lambda tasks: sum(each.took for each in tasks))
