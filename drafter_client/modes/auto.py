"""Mode `auto`: the mode that should be the fastest writes the text, until another should be; and again when the link
has changed (`speculation.policy.mode_selector`).

Nothing is written twice. Under the strategies in `DRAFTER_INVARIANT` the text is that of every
mode. Under the others it is another in each, and where one follows on another is a matter of timing, so that the same
seed may give another text: under `probabilistic` still a sample of the target; under `threshold` it leans to whichever
model drafted, and not at all where none did.

A stretch takes over the session of the last one, and goes on where that ended: nothing is computed again.
"""

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import cycle

from drafter_client.errors import DrafterError
from drafter_client.generation.observer import Committed
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode, Options
from speculation.policy.mode_measurement import WARM_UP

Run = Generator[Committed, None, None]
Begin = Callable[[VerifierClient, Options, Stats], Run]


@dataclass(slots=True)
class _Stretch:
    """A part of a text, in one mode."""

    run: Run
    stats: Stats
    tokens: int = 0
    _accepted: int = 0
    _compared: int = 0

    def compared(self) -> tuple[int, int]:
        """Draft tokens accepted, and compared with the target's choice, since the last time."""
        if self.stats.mode == Mode.REMOTE:  # where all that is committed was foreseen, or was not
            compared = len(self.stats.token_ids)
            accepted = compared - self.stats.mispredicted
        else:
            accepted = self.stats.sources[TokenSource.ACCEPTED]
            compared = accepted + self.stats.sources[TokenSource.RECOVERED]
        news = max(0, accepted - self._accepted), max(0, compared - self._compared)
        self._accepted, self._compared = max(accepted, self._accepted), max(compared, self._compared)
        return min(news), news[1]


def automatic(
    client: VerifierClient,
    begin: Begin,
    chooser: ModeSelection,
    look: Callable[[], None],
    bounds: ResponseBounds,
    text: TextSession,
    options: Options,
    stats: Stats,
    clock: Callable[[], float],
) -> Run:
    """Write a text; fills `stats`. `begin(client, options, stats)` begins to continue `text` in a mode.

    `look` is called between tokens, to see to the link where that is due; it should not wait. `bounds`: of the text,
    its prompt included. `clock` in seconds.
    """
    began = clock()
    stats.prompt_tokens = len(text.prompt_ids)
    stretches: list[_Stretch] = []
    with ExitStack() as stack:
        stack.callback(lambda: _conclude(stats, stretches, 1e3 * (clock() - began), chooser.why()))
        # By turns, since a stretch that is left may leave its connection in the middle of an answer.
        clients = cycle([client, stack.enter_context(closing(client.another()))])
        connecting = stack.enter_context(_Connecting())
        look()
        following = chooser.next(options.max_tokens)
        own = next(clients)
        while stats.finish_reason is None and not text.stop.is_set():
            mode, spare = following, next(clients)
            if chooser.settled is None:
                connecting.begin(spare)
            part = Stats(mode=mode)
            own.round_trip_ms = chooser.link_ms
            stretch = _Stretch(begin(own, replace(options, mode=mode), part), part)
            stretches.append(stretch)
            with closing(stretch.run):
                asked, resumed = clock(), 0
                warm = False
                for committed in stretch.run:
                    now = clock()
                    if not stats.token_ids:
                        stats.ttft_ms = 1e3 * (now - began)
                    _take(committed, stretch, stats)
                    timed = warm and len(part.resumed) == resumed  # an outage is not the mode's
                    chooser.measured(mode, len(committed.tokens), now - asked if timed else 0.0, *stretch.compared())
                    warm, resumed = stretch.tokens >= WARM_UP, len(part.resumed)
                    yield committed
                    look()
                    # Asked once: other texts may make it another at any time.
                    following = chooser.next(options.max_tokens - len(stats.token_ids), mode, stretch.tokens)
                    if following is not mode and bounds.finish_reason(text.known) is None:
                        break
                    asked = clock()  # whatever the reader did meanwhile, it did not wait for tokens
                else:
                    stats.finish_reason = part.finish_reason
            while text.held_back:
                committed = text.held_back.popleft()
                text.passed_on(committed)
                _take(committed, stretch, stats)
                yield committed
                stats.finish_reason = bounds.finish_reason(text.known)
            own = spare
            connecting.wait()


def _take(committed: Committed, stretch: _Stretch, stats: Stats) -> None:
    """Count tokens of a stretch."""
    stats.token_ids += [token for token, _ in committed.tokens]
    stats.decisions += committed.decisions or ()
    stats.sources.update(source for _, source in committed.tokens)
    stretch.tokens += len(committed.tokens)


class _Connecting:
    """Connects beside what is written, one connection at a time, so that the next stretch need not wait for it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="connecting")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> "_Connecting":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def begin(self, client: VerifierClient) -> None:
        self._under_way = self._thread.submit(self._connect, client)

    def wait(self) -> None:
        """Return when that is over."""
        if self._under_way is not None:
            self._under_way.result()

    @staticmethod
    def _connect(client: VerifierClient) -> None:
        with suppress(DrafterError):  # whoever writes over it meets it, too, and says so
            client.transport.connect()


def _conclude(stats: Stats, stretches: list[_Stretch], milliseconds: float, why: str) -> None:
    """All runs are closed, and what they counted is complete."""
    stats.total_ms, stats.why = milliseconds, why
    for stretch in stretches:
        stats.add(stretch.stats, stretch.tokens)
