"""Mode `auto`: the mode that should be the fastest writes the text, until another should be; and again when the link
has changed (`speculation.choice`).

Nothing is written twice. Under the strategies in `DRAFTER_INVARIANT` the text is that of every
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
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import cycle

from drafter_client.client import VerifierClient
from drafter_client.mode_memory import ModeMemory, Setting
from drafter_client.observer import Committed
from drafter_client.options import Mode, Options
from drafter_client.origin import Origin
from drafter_client.replies import Bounds, ModelInfo
from drafter_client.stats import Stats
from drafting.contract import Drafter
from drafting.ngram import NAME as LOOKUP
from speculation.choice import WARM_UP, Choice, Measured, links_differ
from speculation.mode_estimate import PRIOR_LOOKUP, Machines

_LOOK = 0.5  # seconds after which the link is measured again
_HEAD, _STEPS_TIMED = 2, 4  # tokens of a text that draft steps are timed behind, and how many
_LOOKS = 3  # in a row that have to say that it has changed: some may have met a busy machine
_LINKS = 8  # whose rates are kept at hand

Run = Generator[Committed, None, None]
Begin = Callable[[VerifierClient, list[int], Options, Stats], Run]


class Chooser:
    """A `Choice` that all texts of a pair share, from any thread; and when the link is to be looked at. Times are
    seconds."""

    def __init__(
        self,
        modes: Sequence[Mode],
        info: ModelInfo,
        draft: str | None,
        link_ms: float,
        now: float,
        memory: ModeMemory | None = None,
    ) -> None:
        """`info`: what the verifier says of itself. `draft`: what drafts here. `link_ms`: the round trip at present.
        `memory`: of earlier runs; None: nothing is remembered."""
        self._lock = threading.Lock()
        first = info.pass_ms[0] if info.pass_ms else 0.0
        self._setting = Setting(info.name, info.engine, first, draft, info.draft_model)
        self._memory = memory
        self._links: list[tuple[float, dict[str, Measured], float]] = []  # round trips of others, what was known there
        drafts = {Mode.REMOTE: draft, Mode.FUSED: info.draft_model}
        names = {str(mode): name for mode, name in drafts.items() if name is not None}
        priors = {name: PRIOR_LOOKUP for name in names.values() if name == LOOKUP}
        if memory is not None:
            priors |= {names[mode]: share for mode, share in memory.shares(self._setting).items() if mode in names}
        self._choice = Choice(
            [str(mode) for mode in modes],
            Machines(
                tuple(info.pass_ms),
                link_ms,
                served_draft_ms=info.draft_pass_ms,
                self_continue=info.self_continue,
            ),
            names,
            priors,
            *self._recalled(link_ms),
        )
        self._timed = threading.Lock()  # held by whoever times the draft model here
        self._changed = 0  # looks in a row that found another link
        self._looking, self._looked = False, now

    def know(self, drafter: Drafter, text: Sequence[int], clock: Callable[[], float]) -> None:
        """Time a few draft steps, once for all texts, unless another text is about to. `text`: the beginning of what
        will be drafted for with this drafter; `clock` in seconds. Raises what the drafter does."""
        if self._timed.acquire(blocking=False):
            milliseconds = _step_ms(drafter, text, clock)
            with self._lock:
                self._choice.drafts_in(milliseconds)

    def next(self, left: int, mode: Mode | None = None, written: int = 0) -> Mode:
        """The mode to go on with, as `Choice.next` says."""
        with self._lock:
            return Mode(self._choice.next(left, mode, written))

    @property
    def settled(self) -> Mode | None:
        """The mode that is thought the fastest, once it was measured."""
        with self._lock:
            return None if self._choice.settled is None else Mode(self._choice.settled)

    @property
    def link_ms(self) -> float:
        """The round trip of the link that the choice is made for."""
        with self._lock:
            return self._choice.link_ms

    def measured(self, mode: Mode, tokens: int, seconds: float, accepted: int = 0, compared: int = 0) -> None:
        """So much was written in a mode, as `Choice.measured` says."""
        with self._lock:
            self._choice.measured(str(mode), tokens, seconds, accepted, compared)

    def keep(self) -> None:
        """Remember for later runs what was measured."""
        if self._memory is not None:
            with self._lock:
                link, known = self._choice.link_ms, self._known()
            self._memory.keep(self._setting, link, *known)

    def look_is_due(self, now: float) -> bool:
        """Whether the caller is to measure the link, and to say `looked` after: one at a time, with a pause between."""
        with self._lock:
            if self._looking or now - self._looked < _LOOK or len(self._choice.modes) == 1:
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
                self._links = [*self._links, (self._choice.link_ms, *self._known())][-_LINKS:]
                self._choice.begin(round_trip_ms, *self._recalled(round_trip_ms))

    def why(self) -> str:
        """What was measured and what is expected, in words."""
        with self._lock:
            return self._choice.why()

    def _known(self) -> tuple[dict[str, Measured], float]:
        return deepcopy(self._choice.measured_by_mode), self._choice.written

    def _recalled(self, link_ms: float) -> tuple[dict[str, Measured], float]:
        """What is known of such a link: of this run, else of earlier ones."""
        for at_ms, measured, written in reversed(self._links):
            if not links_differ(at_ms, link_ms):
                return measured, written
        return ({}, 0.0) if self._memory is None else self._memory.recall(self._setting, link_ms)


def _step_ms(drafter: Drafter, text: Sequence[int], clock: Callable[[], float]) -> float:
    """Milliseconds of a draft step behind the beginning of a text: the least of some, since the first may prepare what
    later ones use."""
    head, tail, took = text[:_HEAD], list[int](), []
    for _ in range(_STEPS_TIMED):
        began = clock()
        expansion = drafter.expand(head, [tail], False)
        took.append(1e3 * (clock() - began))
        tail = [*tail, expansion.predictions[0].token]
    return min(took)


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
            accepted = compared - self.stats.misses
        else:
            accepted = self.stats.origins[Origin.ACCEPTED]
            compared = accepted + self.stats.origins[Origin.CORRECTION]
        news = max(0, accepted - self._accepted), max(0, compared - self._compared)
        self._accepted, self._compared = max(accepted, self._accepted), max(compared, self._compared)
        return min(news), news[1]


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
        following = chooser.next(options.max_tokens)
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
                chooser.measured(mode, len(tokens), now - asked if warm else 0.0, *stretch.compared())
                warm = stretch.tokens >= WARM_UP
                yield committed
                look()
                # Asked once: other texts may make it another at any time.
                following = chooser.next(options.max_tokens - len(stats.token_ids), mode, stretch.tokens)
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
