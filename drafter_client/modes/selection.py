"""The choice of mode that all texts of a pair share: what is known of both ends, what was measured, the link."""

import threading
from collections.abc import Callable, Sequence
from copy import deepcopy

from drafter_client.http.responses import ModelInfo
from drafter_client.modes.memory import ModeMemory, Setting
from drafter_client.options import Mode
from drafters.base import Drafter
from drafters.lookup import NAME as LOOKUP
from speculation.policy.mode_estimate import PRIOR_LOOKUP, PairLatencies
from speculation.policy.mode_measurement import ModeMeasurement
from speculation.policy.mode_selector import ModeSelector, links_differ

_LOOK = 0.5  # seconds after which the link is measured again
_LOOKS = 3  # in a row that have to say that it has changed: some may have met a busy machine
_LINKS = 8  # whose rates are kept at hand
_HEAD, _STEPS_TIMED = 2, 6  # tokens of a text that draft steps are timed behind, and how many


class ModeSelection:
    """A `ModeSelector` that all texts of a pair share, from any thread; and when the link is to be looked at. Times are
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
        self._links: list[
            tuple[float, dict[str, ModeMeasurement], float]
        ] = []  # round trips of others, what was known there
        drafts = {Mode.REMOTE: draft, Mode.FUSED: info.draft_model}
        names = {str(mode): name for mode, name in drafts.items() if name is not None}
        priors = {name: PRIOR_LOOKUP for name in names.values() if name == LOOKUP}
        if memory is not None:
            priors |= {names[mode]: share for mode, share in memory.shares(self._setting).items() if mode in names}
        self._choice = ModeSelector(
            [str(mode) for mode in modes],
            PairLatencies(
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
            if milliseconds is not None:
                with self._lock:
                    self._choice.drafts_in(milliseconds)

    def next(self, left: int, mode: Mode | None = None, written: int = 0) -> Mode:
        """The mode to go on with, as `ModeSelector.next` says."""
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
        """So much was written in a mode, as `ModeSelector.measured` says."""
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

    def _known(self) -> tuple[dict[str, ModeMeasurement], float]:
        return deepcopy(self._choice.measured_by_mode), self._choice.written

    def _recalled(self, link_ms: float) -> tuple[dict[str, ModeMeasurement], float]:
        """What is known of such a link: of this run, else of earlier ones."""
        for at_ms, measured, written in reversed(self._links):
            if not links_differ(at_ms, link_ms):
                return measured, written
        return ({}, 0.0) if self._memory is None else self._memory.recall(self._setting, link_ms)


def _step_ms(drafter: Drafter, text: Sequence[int], clock: Callable[[], float]) -> float | None:
    """Milliseconds of a draft step behind the beginning of a text: the least of some, since the first may prepare what
    later ones use. None where no step reads a single token."""
    head, tail, took = text[:_HEAD], list[int](), []
    for _ in range(_STEPS_TIMED):
        began = clock()
        expansion = drafter.expand(head, [tail], False)
        if expansion.read <= 1:
            took.append(1e3 * (clock() - began))
        tail = [*tail, expansion.predictions[0].token]
    return min(took, default=None)
