"""Mode `auto`: each mode writes a stretch of the text, the fastest the rest; and again when the link has changed.

Nothing of what is written to measure is lost. Under the strategies in `DRAFTER_INVARIANT` the text is that of every
mode. Under the others it is another in each, and where one follows on another is a matter of timing, so that the same
seed may give another text: under `probabilistic` still a sample of the target; under `threshold` it leans to whichever
model drafted, and not at all where none did.

A stretch goes on where the last one ended, while that one's session is still held: its keys and values are copied, not
computed again.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import cycle

from drafter_client.client import VerifierClient
from drafter_client.observer import Committed
from drafter_client.options import Mode, Options
from drafter_client.replies import Bounds
from drafter_client.stats import Stats
from speculation.choice import WARM_UP, Choice

_LOOK = 0.5  # seconds after which the link is measured again
_LOOKS = 2  # in a row that have to say that it has changed: one may have met a hiccup

Run = Generator[Committed, None, None]
Begin = Callable[[VerifierClient, list[int], Options, Stats], Run]


class Chooser:
    """A `Choice` that all texts of a pair share, from any thread; and when the link is to be looked at. Times are
    seconds."""

    def __init__(self, modes: Sequence[Mode], link_ms: float, now: float) -> None:
        """`link_ms`: the round trip at present."""
        self._lock = threading.Lock()
        self._choice = Choice([str(mode) for mode in modes], link_ms)
        self._changed = 0  # looks in a row that found another link
        self._looking, self._looked = False, now

    def next(self) -> Mode:
        """The mode to go on with."""
        with self._lock:
            return Mode(self._choice.next())

    @property
    def settled(self) -> Mode | None:
        """The fastest mode, once that is clear."""
        with self._lock:
            return None if self._choice.settled is None else Mode(self._choice.settled)

    @property
    def link_ms(self) -> float:
        """The round trip of the link that the choice is made for."""
        with self._lock:
            return self._choice.link_ms

    def measured(self, mode: Mode, tokens: int, seconds: float) -> None:
        """So much was written in a mode."""
        with self._lock:
            self._choice.measured(str(mode), tokens, seconds)

    def look_is_due(self, now: float) -> bool:
        """Whether the caller is to measure the link, and to say `looked` after: one at a time, with a pause between."""
        with self._lock:
            if self._looking or now - self._looked < _LOOK or len(self._choice.ways) == 1:
                return False
            self._looking = True
            return True

    def looked(self, round_trip_ms: float | None, now: float) -> None:
        """The link was measured; None: that failed, and says nothing."""
        with self._lock:
            self._looking, self._looked = False, now
            if round_trip_ms is None:
                return
            self._changed = self._changed + 1 if self._choice.differs(round_trip_ms) else 0
            if self._changed >= _LOOKS:
                self._changed = 0
                self._choice.begin(round_trip_ms)

    def why(self) -> str:
        """What was measured, in words."""
        with self._lock:
            return self._choice.why()


@dataclass(slots=True)
class _Stretch:
    """A part of a text, in one mode."""

    run: Run
    stats: Stats
    tokens: int = 0


def automatic(
    client: VerifierClient,
    begin: Begin,
    chooser: Chooser,
    look: Callable[[], None],
    bounds: Bounds,
    prompt_ids: list[int],
    options: Options,
    stats: Stats,
    clock: Callable[[], float],
) -> Run:
    """Write a text; fills `stats`. `begin(client, tokens, options, stats)` begins to continue `tokens` in a mode.

    `look` is called between tokens, to see to the link where that is due; it should not wait. `bounds`: of the text,
    its prompt included. `clock` in seconds.
    """
    began = clock()
    stats.prompt_tokens = len(prompt_ids)
    stretches: list[_Stretch] = []
    with ExitStack() as stack:
        stack.callback(lambda: _conclude(stats, stretches, 1e3 * (clock() - began), chooser.why()))
        # By turns: the connection of a stretch is in use until the next one has begun.
        clients = cycle([client, stack.enter_context(closing(client.another()))])
        runs = stack.enter_context(ExitStack())
        # To close one takes an exchange with the verifier, in which the next one goes on.
        closer = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="closing"))
        shut: Future[None] | None = None
        look()
        following = chooser.next()
        while stats.finish_reason is None:
            if shut is not None:
                shut.result()  # the last but one is closed, and its connection free
            mode, own = following, next(clients)
            part = Stats(mode=mode)
            own.round_trip_ms = chooser.link_ms
            how = replace(options, mode=mode, max_tokens=options.max_tokens - len(stats.token_ids))
            stretch = _Stretch(begin(own, prompt_ids + stats.token_ids, how, part), part)
            stretches.append(stretch)
            runs.callback(stretch.run.close)
            asked = clock()
            warm = False
            for committed in stretch.run:
                now, tokens = clock(), [token for token, _ in committed.tokens]
                if not stretch.tokens:
                    stats.ttft_ms = stats.ttft_ms or 1e3 * (now - began)
                    for before in stretches[-2:-1]:
                        shut = closer.submit(before.run.close)  # what its session holds was of use until here
                stats.token_ids += tokens
                stats.decisions += committed.decisions or ()
                stats.origins.update(origin for _, origin in committed.tokens)
                stretch.tokens += len(tokens)
                if warm:
                    chooser.measured(mode, len(tokens), now - asked)
                warm = stretch.tokens >= WARM_UP
                yield committed
                look()
                following = chooser.next()  # asked once: other texts may make it another at any time
                if following is not mode and bounds.finish_reason(prompt_ids + stats.token_ids) is None:
                    break
                asked = clock()  # whatever the reader did meanwhile, it did not wait for tokens
            else:
                stats.finish_reason = part.finish_reason
        if shut is not None:
            shut.result()


def _conclude(stats: Stats, stretches: list[_Stretch], milliseconds: float, why: str) -> None:
    """All runs are closed, and what they counted is complete."""
    stats.total_ms, stats.why = milliseconds, why
    for stretch in stretches:
        stats.add(stretch.stats, stretch.tokens)
