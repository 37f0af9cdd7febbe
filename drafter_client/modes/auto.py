"""Mode `auto`: generate a text in the mode expected to be the fastest, and change when another is expected to be.

The selection begins anew when the link has changed (`specpair.speculation.policy.modes.selector`).

No token is generated twice. Under the strategies in `DRAFTER_INVARIANT` the text is the same in every mode. Under the
others each mode gives a different text, and timing decides where the mode changes, so the same seed may give different
texts. Under `probabilistic` each of them is a sample of the target. Under `threshold` the text leans towards the model
that drafted, and in mode `target`, where nothing drafts, it is a sample of the target.

A stretch is the part of a text that is generated in one mode without a change. It takes over the session of the stretch
before and continues where that stretch ended, so nothing is computed again.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from copy import deepcopy
from itertools import cycle
from typing import Literal

from drafter_client.errors import DrafterError
from drafter_client.generation.events import Began, Committed, Ended, Listener
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.modes.memory import ModeMemory, Setting
from drafter_client.options import Mode, Options
from specpair.drafters.base import NGRAM_LOOKUP, Drafter
from specpair.drafters.warm_engine import PassTimes
from specpair.protocol.errors import SpecPairError
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.drafting.lookups import FoundTokens, Lookups
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.modes import estimate
from specpair.speculation.policy.modes.rates import ModeRates, links_differ
from specpair.speculation.policy.modes.selector import ModeSelector

_PROBE_PAUSE = 0.5  # seconds from one probe of the link to the next
_PROBES = 3  # probes in a row that have to find another round trip: a busy machine may disturb some
_LINKS = 8  # earlier links of this run whose measurements are kept
_PRIOR_FOUND = 0.1  # share of a text's tokens that lookups find, before any text was written
_PROMPT_TIMED, _STEPS_TIMED = 2, 6  # prompt tokens before the draft steps that are timed, and how many steps are timed


class ModeSelection:
    """A `ModeSelector` that all texts of a pair share, and the schedule of link probes.

    All methods may be called from any thread. Points in time are seconds.
    """

    def __init__(
        self,
        modes: Sequence[Mode],
        info: ModelInfo,
        draft: str | None,
        link: float,
        now: float,
        memory: ModeMemory | None = None,
        *,
        predicted: bool = False,
        times: PassTimes | None = None,
        shares_cores: bool = False,
        lookups: Literal["never", "also", "only"] = "never",
    ) -> None:
        """`draft`: name of the drafter on this machine.
        `link`: the present round trip in seconds.
        `memory`: measurements of earlier runs; None: nothing is remembered.
        `predicted`: whether the texts have predictions, from which the verifier drafts without a draft model, too.
        `times`: of the draft model's passes; None: not known.
        `shares_cores`: whether the drafter and the verifier need the same cores of this machine.
        `lookups`: whether texts may be drafted here by lookup alone, also or only so.
        """
        self._lock = threading.Lock()
        first = info.pass_ms[0] if info.pass_ms else 0.0
        self._setting, self._memory = Setting(info.name, info.engine, first, draft, info.draft_model), memory
        # Earlier links of this run: round trip, measurements by mode, and `ModeSelector.written`.
        self._links: list[tuple[float, dict[str, estimate.ModeMeasurement], float]] = []
        drafts = {Mode.REMOTE: draft, Mode.FUSED: info.draft_model or (NGRAM_LOOKUP if predicted else None)}
        names = {str(mode): name for mode, name in drafts.items() if name is not None}
        priors = {name: estimate.PRIOR_LOOKUP for name in names.values() if name == NGRAM_LOOKUP}
        if predicted:
            priors = dict.fromkeys(names.values(), estimate.PRIOR_PREDICTION)
        if memory is not None:
            rates = memory.acceptance_rates(self._setting)
            priors |= {names[mode]: rate for mode, rate in rates.items() if mode in names}
        measured, written = self._recalled(link)
        latencies = estimate.PairLatencies(
            tuple(info.pass_times),
            link,
            served_draft=0.0 if predicted and info.draft_model is None else info.draft_pass_time,
            self_continue=info.self_continue,
            draft=None if times is None else times.token,
            read=(0.0 if times is None else times.read) if shares_cores else None,
            trees=info.trees,
            served_depth=info.head_depth if info.head and info.draft_model == info.head else MAX_AUTO,
            head=info.head_pass_time,
            head_depth=info.head_depth,
        )
        self._rates = ModeRates([str(mode) for mode in modes], latencies, names, priors, measured, lookups == "only")
        self._selector = ModeSelector(self._rates, written)
        self._may_look_up = lookups != "never"
        self._found = estimate.AcceptanceEstimate(estimate.PRIOR_PREDICTION if predicted else _PRIOR_FOUND)
        self._timed = threading.Lock()  # taken by the first text that times the drafter, and never released
        self._probing, self._probed_at, self._changed = False, now, 0  # `_changed`: probes that found another link

    def time_draft_steps(self, drafter: Drafter, text: Sequence[int], clock: Callable[[], float]) -> None:
        """Time a few draft steps for the beginning of a text; only the first call does, for all texts. Raises what the
        drafter raises."""
        if self._timed.acquire(blocking=False):
            seconds = _step_time(drafter, text, clock)
            if seconds is not None:
                with self._lock:
                    self._rates.drafts_in(seconds)

    def next(
        self,
        left: int,
        way: str | None = None,
        written: int = 0,
        unread: int = 0,
        found: estimate.AcceptanceEstimate | None = None,
    ) -> str:
        """The mode of the next stretch of a text that may have `left` more tokens, or `LOOKUP`.

        `way`: that of its last `written` tokens; None: the text begins.
        `unread`: tokens of the text and its prompt that the drafter on this machine has not read.
        `found`: how many of its tokens lookups find; None: nothing is looked up.
        """
        with self._lock:
            return self._selector.next(left, way, written, unread, found if self._may_look_up else None)

    def found(self) -> estimate.AcceptanceEstimate:
        """How many tokens of a text that begins now lookups may find, by what they found in the latest texts."""
        with self._lock:
            return estimate.AcceptanceEstimate(self._found.likely)

    def add_found(self, found: int, tokens: int) -> None:
        """Take in that lookups found `found` of `tokens` tokens of a text, in whatever mode it is written."""
        with self._lock:
            self._found.learn(found, tokens)

    @property
    def fastest(self) -> Mode | None:
        """The mode that is expected to be the fastest; None until that mode was measured over the present link."""
        with self._lock:
            return None if self._selector.fastest is None else mode_of(self._selector.fastest)

    @property
    def link(self) -> float:
        with self._lock:
            return self._rates.machines.link

    def add_measurement(self, way: str, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        with self._lock:
            self._selector.add_measurement(way, tokens, seconds, accepted, compared)

    def keep(self) -> None:
        if self._memory is not None:
            with self._lock:
                link, known = self._rates.machines.link, self._known()
            self._memory.keep(self._setting, link, *known)

    def probe_is_due(self, now: float) -> bool:
        """Whether the caller has to measure the round trip at once and then call `probed`. One probe runs at a time,
        with a pause before the next."""
        with self._lock:
            if self._probing or now - self._probed_at < _PROBE_PAUSE or len(self._rates.modes) == 1:
                return False
            self._probing = True
            return True

    def probed(self, round_trip: float | None, now: float) -> None:
        """Take in the result of a probe; None: it failed, and is ignored. After several of another link, the selection
        begins anew."""
        with self._lock:
            self._probing, self._probed_at = False, now
            if round_trip is None:
                return
            self._changed = self._changed + 1 if links_differ(self._rates.machines.link, round_trip) else 0
            if self._changed >= _PROBES:
                self._changed = 0
                self._links = [*self._links, (self._rates.machines.link, *self._known())][-_LINKS:]
                self._selector.begin(round_trip, *self._recalled(round_trip))

    @property
    def rates(self) -> dict[Mode, estimate.RateEstimate]:
        with self._lock:
            return {Mode(way): each for way, each in self._rates.estimates.items() if way != estimate.LOOKUP}

    def expected_rate(self, step: float, accepted: float) -> float:
        """As `ModeRates.expected_rate`."""
        with self._lock:
            return self._rates.expected_rate(step, accepted)

    def measured(self, mode: Mode) -> tuple[float, bool] | None:
        """The tokens per second measured in a mode over the present link, and whether in an earlier run; None: too few
        tokens were."""
        with self._lock:
            return self._rates.measured(str(mode))

    def why(self) -> str:
        """The measured or expected tokens per second of each mode, in words, for the readout."""
        with self._lock:
            return self._rates.why()

    def _known(self) -> tuple[dict[str, estimate.ModeMeasurement], float]:
        return deepcopy(self._rates.measured_by_mode), self._selector.written

    def _recalled(self, link: float) -> tuple[dict[str, estimate.ModeMeasurement], float]:
        """Measurements by mode over a similar link, and `ModeSelector.written`: of this run, else of earlier runs."""
        for at, measured, written in reversed(self._links):
            if not links_differ(at, link):
                return measured, written
        return ({}, 0.0) if self._memory is None else self._memory.recall(self._setting, link)


def mode_of(way: str) -> Mode:
    """The mode of a stretch: lookup alone is a way of drafting here."""
    return Mode.REMOTE if way == estimate.LOOKUP else Mode(way)


def _step_time(drafter: Drafter, text: Sequence[int], clock: Callable[[], float]) -> float | None:
    """Seconds of the shortest of a few draft steps after the beginning of a text.

    The minimum is taken because the first steps may include one-time work. None if every step read several tokens, as
    such a step takes longer than drafting one token.
    """
    prompt, tail, took = text[:_PROMPT_TIMED], list[int](), []
    for _ in range(_STEPS_TIMED):
        began = clock()
        expansion = drafter.expand(prompt, [tail], False)
        if expansion.read <= 1:
            took.append(clock() - began)
        tail = [*tail, expansion.proposals[0].token]
    return min(took, default=None)


_PINGS = 2  # round trips measured in each probe, as a single one may be delayed; the shortest counts


class LatencyProbe:
    """Calling this object measures the link if that is due. May be called from any thread; does not wait."""

    def __init__(self, client: VerifierClient, selection: ModeSelection, clock: Callable[[], float]) -> None:
        """`client`: a connection for the probes alone, which `close` closes."""
        self._client, self._selection, self._clock = client, selection, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="latency-probe")

    def __call__(self) -> None:
        if self._selection.probe_is_due(self._clock()):
            self._thread.submit(self._probe)

    def close(self) -> None:
        self._client.abort()
        self._thread.shutdown()
        self._client.close()

    def _probe(self) -> None:
        round_trip: float | None = None
        try:
            with suppress(DrafterError, SpecPairError):  # the text that is being generated raises the same error
                self._client.connection.connect()  # a new connection takes a round trip, which must not be measured
                round_trip = self._client.least_round_trip(_PINGS)
        finally:
            self._selection.probed(round_trip, self._clock())


Run = Generator[Committed, None, None]
# Begins a stretch of a text in `Options.mode`; the last argument: drafted by lookup alone.
Begin = Callable[[VerifierClient, Options, bool], Run]


def automatic(
    client: VerifierClient,
    begin: Begin,
    learnt: Callable[[], tuple[ModeSelection, Callable[[], None]]],
    bounds: Callable[[], ResponseBounds],
    text: TextSession,
    options: Options,
    tell: Listener,
    clock: Callable[[], float],
    lookups: Callable[[], Lookups] | None = None,
) -> Run:
    """Generate a text. `begin` begins a stretch of `text` in `options.mode`, and tells that mode.

    `learnt`: of the present verifier, its mode selection, and what is called between tokens to measure the link when
        that is due, without waiting.
    `lookups`: makes those of the text; None: nothing is looked up.
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
        looked_up = None if lookups is None else FoundTokens(lookups, text.known)
        share = None if looked_up is None else selection.found()
        next_way = selection.next(bounds().tokens - len(text.known), None, 0, len(text.known) - read, share)
        current = next(clients)
        while text.finish_reason is None and not text.stop.is_set():
            way, spare = next_way, next(clients)
            # While this stretch runs, so that the next one need not wait for it.
            connecting = thread.submit(_connect, spare) if selection.fastest is None else None
            with closing(begin(current, options.in_mode(mode_of(way)), way == estimate.LOOKUP)) as run:
                asked, outages, written = clock(), text.outages, 0
                for committed in run:
                    selection, probe = learnt()
                    # The first tokens of a stretch are not timed; an outage does not count against the mode.
                    timed = written >= estimate.WARM_UP and outages == text.outages
                    seconds, count = clock() - asked if timed else 0.0, len(committed.tokens)
                    found = 0
                    if looked_up is not None and share is not None and count:
                        found = looked_up.take([token for token, _ in committed.tokens])
                        share.learn(found, count)
                        selection.add_found(found, count)
                    judged = (found, count) if way == estimate.LOOKUP else compared(committed)
                    selection.add_measurement(way, count, seconds, *judged)
                    outages, written = text.outages, written + count
                    yield committed
                    probe()
                    # Called once for both uses: measurements of other texts may change the answer at any time.
                    read = len(text.known) if way == Mode.REMOTE else read
                    left, unread = bounds().tokens - len(text.known), len(text.known) - read
                    next_way = selection.next(left, way, written, unread, share)
                    if next_way != way and bounds().finish_reason(text.known) is None:
                        break
                    asked = clock()  # the time that the reader of the text took does not count
            yield from text.news()  # a stretch may have committed more by the time it ended
            text.check_complete(bounds())
            current = spare
            if connecting is not None:
                connecting.result()


def compared(committed: Committed) -> tuple[int, int]:
    """How many draft tokens were accepted, and how many compared with the target's choice."""
    if committed.schedule is not None:  # the drafter on this machine predicts every token, sent or not
        return len(committed.tokens) - committed.mispredicted, len(committed.tokens)
    sources = [source for _, source in committed.tokens]
    accepted = sources.count(TokenSource.ACCEPTED)
    return accepted, accepted + sources.count(TokenSource.RECOVERED)


def _connect(client: VerifierClient) -> None:
    with suppress(DrafterError):  # the stretch that uses the connection raises the same error
        client.connection.connect()
