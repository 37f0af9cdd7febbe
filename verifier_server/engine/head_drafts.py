"""Drafts by the target's own head, which the engine runs between passes, for sessions that have a slot."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specpair.engines.backend import Backend, Entry, HeadEntry
from specpair.engines.probe_texts import timing_ids
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.drafting.proposing import proposal
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.cost_by_width import LEAST
from specpair.speculation.sampling.sampling import Row
from verifier_server.engine.slots import SlotPool
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.engine")
_TIMED = 3  # drafts of the head, of which the quickest counts


class HeadQuestion(NamedTuple):
    """What is asked of the head: the token behind the first `position` tokens of a session and `tail`, and what follows
    it, `steps` tokens at most."""

    session: Session
    position: int
    tail: Sequence[int]
    runners_up: int = 0
    steps: int = 1


class HeadDrafts:
    """Answers the questions of texts. Used by the engine's thread only."""

    def __init__(self, backend: Backend, slots: SlotPool) -> None:
        self._backend, self._slots = backend, slots

    def answer(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        """The proposal for each question; None where the session holds other tokens than that, where the head cannot
        draft behind so many, or where no token can be chosen. Each session may occur once. Raises BackendError, after
        which the target goes on."""
        found = self._answer(asked)
        deeper = {
            at: each._replace(tail=[*each.tail, first.token], steps=each.steps - 1)
            for at, (each, first) in enumerate(zip(asked, found, strict=True))
            if first is not None and each.steps > 1 and first.token not in self._backend.vocabulary.ends
        }
        for at, behind in zip(deeper, self.answer([*deeper.values()]) if deeper else (), strict=True):
            if (first := found[at]) is not None:
                found[at] = first._replace(behind=behind)
        return found

    def _answer(self, asked: Sequence[HeadQuestion]) -> list[Proposal | None]:
        entries = {at: entry for at, each in enumerate(asked) if (entry := self._entry(each)) is not None}
        rows = self._backend.extend_head([*entries.values()]) if entries else ()
        found = dict(zip(entries, rows, strict=True))
        return [None if at not in found else self._proposal(each, found[at]) for at, each in enumerate(asked)]

    def _entry(self, asked: HeadQuestion) -> HeadEntry | None:
        session = asked.session
        if session not in self._slots or len(session.tokens) != asked.position or session.finish_reason is not None:
            return None
        if self._slots.unread(session):  # the slot was taken meanwhile, or a pass has failed
            return None
        slot = self._slots[session]
        tail = [*session.tokens[slot.held :], *asked.tail]
        return HeadEntry(slot.number, slot.held, tail) if len(tail) <= self._backend.head_depth else None

    def _proposal(self, asked: HeadQuestion, row: Row) -> Proposal | None:
        session, sampling = asked.session, asked.session.rule.sampling
        position = asked.position + len(asked.tail)
        try:
            if session.processors is not None:
                session.processors.commit(session.tokens)
                row = session.processors.process(row, asked.tail)
            return proposal(row, sampling, position, asked.runners_up, draws=session.strategy.draws)
        except (ValueError, InvalidRequest) as error:  # a bad row, or a grammar that cannot be followed any further
            _log.warning("the head drafts nothing: %s", error, extra={"session_id": session.id})
            return None


def step_time(backend: Backend, clock: Callable[[], float]) -> float:
    """Seconds of a step of the head, measured in slot 0, which is released afterwards; 0 without a head.

    It is the mean of a whole draft: some heads draft all tokens in the first step.
    """
    if not backend.head_depth:
        return 0.0
    first, *tail = timing_ids(backend.vocabulary.size, 1 + backend.head_depth)
    backend.extend([Entry(0, 0, [first], 1)])
    times = []
    for _ in range(_TIMED):
        began = clock()
        for count in range(1, len(tail) + 1):
            backend.extend_head([HeadEntry(0, 1, tail[:count])])
        times.append((clock() - began) / len(tail))
    backend.release(0)
    return max(LEAST, min(times))
