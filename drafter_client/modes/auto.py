"""Mode `auto`: generate a text in the mode expected to be the fastest, and change when another is expected to be.

The selection begins anew when the link has changed (`specpair.speculation.policy.modes.selector`).

No token is generated twice. Under the strategies in `DRAFTER_INVARIANT` the text is the same in every mode. Under the
others each mode gives a different text, and timing decides where the mode changes, so the same seed may give different
texts. Under `probabilistic` each of them is a sample of the target. Under `threshold` the text leans towards the model
that drafted, and in mode `target`, where nothing drafts, it is a sample of the target.

A stretch is the part of a text that is generated in one mode without a change. It takes over the session of the stretch
before and continues where that stretch ended, so nothing is computed again.
"""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import cycle

from drafter_client.errors import DrafterError
from drafter_client.generation.events import Began, Committed, Ended, Listener
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode, Options
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.modes.estimate import WARM_UP


class Stretch:
    """The part of a text that is generated in one mode without a change. Points in time are seconds."""

    def __init__(self, mode: Mode, now: float, outages: int = 0) -> None:
        """`outages`: how many the text has had so far."""
        self.mode = mode
        self._asked, self._outages = now, outages
        self._written, self._warm = 0, False

    def add(self, selection: ModeSelection, committed: Committed, now: float, outages: int = 0) -> None:
        """Measure tokens that came `now`."""
        timed = self._warm and outages == self._outages  # an outage does not count against the mode
        seconds = now - self._asked if timed else 0.0
        selection.add_measurement(self.mode, len(committed.tokens), seconds, *_compared(committed))
        self._written += len(committed.tokens)
        self._warm, self._outages = self._written >= WARM_UP, outages

    def next(self, selection: ModeSelection, left: int, unread: int) -> Mode:
        """The mode of the next tokens: another one begins a new stretch. `left`, `unread`: as for `ModeSelection`."""
        return selection.next(left, self.mode, self._written, unread)

    def ask(self, now: float) -> None:
        """The reader of the text wants the next tokens; the time before does not count."""
        self._asked = now


def _compared(committed: Committed) -> tuple[int, int]:
    """How many draft tokens were accepted, and how many compared with the target's choice."""
    if committed.schedule is not None:  # the drafter on this machine predicts every token, sent or not
        return len(committed.tokens) - committed.mispredicted, len(committed.tokens)
    sources = [source for _, source in committed.tokens]
    accepted = sources.count(TokenSource.ACCEPTED)
    return accepted, accepted + sources.count(TokenSource.RECOVERED)


Run = Generator[Committed, None, None]
Begin = Callable[[VerifierClient, Options], Run]  # begins a stretch of a text in `Options.mode`


def automatic(
    client: VerifierClient,
    begin: Begin,
    learnt: Callable[[], tuple[ModeSelection, Callable[[], None]]],
    bounds: Callable[[], ResponseBounds],
    text: TextSession,
    options: Options,
    tell: Listener,
    clock: Callable[[], float],
) -> Run:
    """Generate a text. `begin(client, options)` begins a stretch of `text` in `options.mode`, and tells that mode.

    `learnt`: of the present verifier, its mode selection, and what is called between tokens to measure the link when
        that is due, without waiting.
    `bounds`: show whether the text is complete.
    `tell`: takes the events of the text.
    `clock`: returns seconds.
    """
    tell(Began(len(text.prompt_ids)), clock())
    with ExitStack() as stack:
        stack.callback(lambda: tell(Ended(text.finish_reason, why=learnt()[0].why()), clock()))
        # Two connections in turn: a stretch that ends early may leave its connection in the middle of a response.
        clients = cycle([client, stack.enter_context(closing(client.another()))])
        thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="connecting"))
        selection, probe = learnt()
        probe()
        read = text.read  # tokens of the text that the drafter on this machine has read
        next_mode = selection.next(bounds().tokens - len(text.known), None, 0, len(text.known) - read)
        current = next(clients)
        while text.finish_reason is None and not text.stop.is_set():
            mode, spare = next_mode, next(clients)
            # While this stretch runs, so that the next one need not wait for it.
            connecting = thread.submit(_connect, spare) if selection.fastest is None else None
            with closing(begin(current, options.in_mode(mode))) as run:
                stretch = Stretch(mode, clock(), text.outages)
                for committed in run:
                    selection, probe = learnt()
                    stretch.add(selection, committed, clock(), text.outages)
                    yield committed
                    probe()
                    # Called once for both uses: measurements of other texts may change the answer at any time.
                    read = len(text.known) if mode is Mode.REMOTE else read
                    next_mode = stretch.next(selection, bounds().tokens - len(text.known), len(text.known) - read)
                    if next_mode is not mode and bounds().finish_reason(text.known) is None:
                        break
                    stretch.ask(clock())
            yield from text.news()  # a stretch may have committed more by the time it ended
            text.check_complete(bounds())
            current = spare
            if connecting is not None:
                connecting.result()


def _connect(client: VerifierClient) -> None:
    with suppress(DrafterError):  # the stretch that uses the connection raises the same error
        client.connection.connect()
