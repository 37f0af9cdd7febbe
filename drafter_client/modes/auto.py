"""Mode `auto`: generate a text in the mode expected to be the fastest, and change when another is expected to be.

The selection begins anew when the link has changed (`speculation.policy.mode_selector`).

No token is generated twice. Under the strategies in `DRAFTER_INVARIANT` the text is the same in every mode. Under the
others each mode gives a different text, and timing decides where the mode changes, so the same seed may give different
texts. Under `probabilistic` each of them is a sample of the target. Under `threshold` the text leans towards the model
that drafted, and in mode `target`, where nothing drafts, it is a sample of the target.

A stretch is the part of a text that is generated in one mode without a change. It takes over the session of the stretch
before and continues where that stretch ended, so nothing is computed again.
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
Begin = Callable[[VerifierClient, Options, Stats], Run]  # begins a stretch of a text in `Options.mode`


@dataclass(slots=True)
class _Stretch:
    """A part of a text, generated in one mode. `tokens`: how many of its tokens were taken into the text."""

    run: Run
    stats: Stats
    tokens: int = 0
    _accepted: int = 0
    _compared: int = 0

    def newly_compared(self) -> tuple[int, int]:
        """Return how many draft tokens were accepted, and how many compared with the target's choice, since the last
        call."""
        if self.stats.mode == Mode.REMOTE:  # the drafter predicts every committed token, sent or not
            compared = len(self.stats.token_ids)
            accepted = compared - self.stats.mispredicted
        else:
            accepted = self.stats.sources[TokenSource.ACCEPTED]
            compared = accepted + self.stats.sources[TokenSource.RECOVERED]
        new = max(0, accepted - self._accepted), max(0, compared - self._compared)
        self._accepted, self._compared = max(accepted, self._accepted), max(compared, self._compared)
        return min(new), new[1]


def automatic(
    client: VerifierClient,
    begin: Begin,
    selection: ModeSelection,
    probe: Callable[[], None],
    bounds: ResponseBounds,
    text: TextSession,
    options: Options,
    stats: Stats,
    clock: Callable[[], float],
) -> Run:
    """Generate a text; fill `stats`. `begin(client, options, stats)` begins a stretch of `text` in `options.mode`.

    `probe`: called between tokens to measure the link when that is due; it must not wait. `bounds`: tell whether the
    text is complete. `clock`: returns seconds.
    """
    began = clock()
    stats.prompt_tokens = len(text.prompt_ids)
    stretches: list[_Stretch] = []
    with ExitStack() as stack:
        stack.callback(lambda: _conclude(stats, stretches, 1e3 * (clock() - began), selection.why()))
        # Two connections in turn: a stretch that ends early may leave its connection in the middle of a response.
        clients = cycle([client, stack.enter_context(closing(client.another()))])
        connecting = stack.enter_context(_Connecting())
        probe()
        next_mode = selection.next(options.max_tokens)
        current = next(clients)
        while stats.finish_reason is None and not text.stop.is_set():
            mode, spare = next_mode, next(clients)
            if selection.fastest is None:
                connecting.begin(spare)
            part = Stats(mode=mode)
            current.round_trip_ms = selection.link_ms
            stretch = _Stretch(begin(current, replace(options, mode=mode), part), part)
            stretches.append(stretch)
            with closing(stretch.run):
                asked, resumed = clock(), 0
                warm = False
                for committed in stretch.run:
                    now = clock()
                    if not stats.token_ids:
                        stats.ttft_ms = 1e3 * (now - began)
                    _take(committed, stretch, stats)
                    timed = warm and len(part.resumed) == resumed  # an outage does not count against the mode
                    seconds = now - asked if timed else 0.0
                    selection.add_measurement(mode, len(committed.tokens), seconds, *stretch.newly_compared())
                    warm, resumed = stretch.tokens >= WARM_UP, len(part.resumed)
                    yield committed
                    probe()
                    # Called once for both uses: measurements of other texts may change the answer at any time.
                    next_mode = selection.next(options.max_tokens - len(stats.token_ids), mode, stretch.tokens)
                    if next_mode is not mode and bounds.finish_reason(text.known) is None:
                        break
                    asked = clock()  # the time that the reader of the text takes does not count
                else:
                    stats.finish_reason = part.finish_reason
            while text.held_back:
                committed = text.held_back.popleft()
                text.passed_on(committed)
                _take(committed, stretch, stats)
                yield committed
                stats.finish_reason = bounds.finish_reason(text.known)
            current = spare
            connecting.wait()


def _take(committed: Committed, stretch: _Stretch, stats: Stats) -> None:
    """Count committed tokens of a stretch as part of the text."""
    stats.token_ids += [token for token, _ in committed.tokens]
    stats.decisions += committed.decisions or ()
    stats.sources.update(source for _, source in committed.tokens)
    stretch.tokens += len(committed.tokens)


class _Connecting:
    """Connects a client in a thread while a stretch runs, so that the next stretch need not wait for it."""

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
        """Return when the connection attempt is over."""
        if self._under_way is not None:
            self._under_way.result()

    @staticmethod
    def _connect(client: VerifierClient) -> None:
        with suppress(DrafterError):  # the stretch that uses the connection raises the same error
            client.connection.connect()


def _conclude(stats: Stats, stretches: list[_Stretch], milliseconds: float, why: str) -> None:
    """Add the statistics of all stretches to those of the text. Their runs have ended, so theirs are complete."""
    stats.total_ms, stats.why = milliseconds, why
    for stretch in stretches:
        stats.add(stretch.stats, stretch.tokens)
