"""A server that collects a batch in a window, as DSD-Sim has it, with drafters in a closed loop. Times in milliseconds.

A batch begins with the first waiting job. It takes jobs until it is full, or until the window is over, and then runs
for the time of its longest job, however many there are. A drafter sends a prompt, and then so many drafts, each after
the answer to the one before. Then it pauses.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lab.simulator.virtual.world import EventLoop


@dataclass(frozen=True, slots=True)
class Windowed:
    """The experiment, with DSD-Sim's values (its `homogeneous_draft` sweep of 2025)."""

    servers: int = 2
    batch: int = 8  # jobs, at most
    window: float = 10.0
    prefill: float = 50.0
    decode: float = 37.0
    draft: float = 24.0  # of a whole draft
    link: float = 20.0  # one way
    drafts: int = 5  # of a text
    length: int = 4  # tokens of a draft
    agreement: float = 0.85
    pause: float = 100.0  # mean, between texts
    unevenness: float = 0.0  # drafters' links differ by up to so much
    loses: bool = False  # whether a job that arrives just as a window ends is lost: its drafter waits for ever

    def full_from(self) -> float:
        """The number of drafters from which each batch is full as it begins. While a batch runs, a second one must be
        waiting, and those of the batch before are away for as long as it takes."""
        longest = 1.0 - (self.drafts / (1 + self.drafts)) ** self.batch  # the chance that a batch has a prompt
        runs = longest * self.prefill + (1.0 - longest) * self.decode
        return self.servers * self.batch * (2.0 + (self.draft + 2 * self.link) / runs)


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has shown."""

    tokens: float  # accepted draft tokens a second
    rows: float  # jobs of a batch, in the mean
    stuck: int  # drafters that wait for ever
    round_trip: float  # of a draft, from its beginning to the answer, in the mean


class _Server:
    def __init__(self, loop: EventLoop, setting: Windowed) -> None:
        self.waiting: deque[tuple[float, Callable[[], object]]] = deque()  # time that a job takes, and what follows
        self.batches = self.rows = 0
        self.lost = 0  # jobs; the router counts them as waiting
        self._loop, self._setting = loop, setting
        self._busy = False
        self._until: float | None = None  # when the window under way ends

    @property
    def load(self) -> int:
        return len(self.waiting) + self.lost + self._busy

    def submit(self, takes: float, then: Callable[[], object]) -> None:
        if self._setting.loses and self._loop.now == self._until:
            self.lost += 1
            self._over(self._until)
            return
        self.waiting.append((takes, then))
        self._look()

    def _look(self) -> None:
        if self._busy or not self.waiting:
            return
        if len(self.waiting) >= self._setting.batch:
            self._run()
        elif self._until is None:
            self._until = until = self._loop.now + self._setting.window
            self._loop.at(until, lambda: self._over(until))

    def _over(self, until: float) -> None:
        if self._until == until:
            self._run()

    def _run(self) -> None:
        self._busy, self._until = True, None
        jobs = [self.waiting.popleft() for _ in range(min(self._setting.batch, len(self.waiting)))]
        self.batches += 1
        self.rows += len(jobs)

        def done() -> None:
            self._busy = False
            for _, then in jobs:
                then()
            self._look()

        self._loop.at(self._loop.now + max(takes for takes, _ in jobs), done)


def run(setting: Windowed, drafters: int, until: float, seed: int = 0) -> Found:
    """Run `drafters` up to `until`; the first second does not count for tokens and round trips."""
    loop, rng = EventLoop(), random.Random(seed)
    servers = [_Server(loop, setting) for _ in range(setting.servers)]
    accepted, trips, answered = [0], [0.0, 0.0], [0.0] * drafters

    def text(drafter: int, link: float) -> None:
        least = min(each.load for each in servers)
        server = rng.choice([each for each in servers if each.load == least])

        def drafted(number: int, began: float) -> None:
            loop.at(loop.now + link, lambda: server.submit(setting.decode, lambda: judged(number, began)))

        def judged(number: int, began: float) -> None:
            loop.at(loop.now + link, lambda: answer(number, began))

        def answer(number: int, began: float | None) -> None:
            answered[drafter] = loop.now
            if began is not None and loop.now > 1000.0:
                trips[0] += loop.now - began
                trips[1] += 1
                for _ in range(setting.length):
                    if rng.random() >= setting.agreement:
                        break
                    accepted[0] += 1
            if number == setting.drafts:
                loop.at(loop.now + rng.expovariate(1.0 / setting.pause), lambda: text(drafter, link))
            else:
                now = loop.now
                loop.at(now + setting.draft, lambda: drafted(number + 1, now))

        def prompt() -> None:
            server.submit(setting.prefill, lambda: loop.at(loop.now + link, lambda: answer(0, None)))

        loop.at(loop.now + link, prompt)

    for drafter in range(drafters):
        text(drafter, setting.link + rng.uniform(0.0, setting.unevenness))
    loop.run(until)
    stuck = sum(each.lost for each in servers)
    rows = sum(each.rows for each in servers) / max(1, sum(each.batches for each in servers))
    return Found(accepted[0] / (until - 1000.0) * 1000.0, rows, stuck, trips[0] / max(1.0, trips[1]))
