"""The thread that runs the rounds: it drafts for all texts, hands their drafts to the engine, and reports answers.

One thread does what no two texts can do at once anyway. Texts with a thread each would have to meet before every pass,
and threads that wait for each other take longer than a draft pass of a small model.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue

from specpair.drafters.draft_model import ModelDrafter, expand_together
from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.engine_client import disconnected
from verifier_server.generation.round_policy import RoundText
from verifier_server.generation.rounds import DraftPass, Rounds, TargetPass
from verifier_server.sessions import Session

_log = logging.getLogger("specpair.verifier")


class _Stopped(Exception):
    """The thread should end."""


@dataclass(eq=False, slots=True)
class RoundMember:
    """A text of the rounds, with its drafter and the receiver of its answers."""

    text: RoundText
    engine: TokenEngine
    session: Session
    drafter: ModelDrafter | None  # None: only the target's head drafts
    drafted: Callable[[float], object]  # takes the seconds of each draft pass
    report: Callable[[Answer, Draft], object]  # takes each answer, with the draft that it answers
    error: BaseException | None = None  # what has ended the text, or its drafts, too early
    over: threading.Event = field(default_factory=threading.Event)  # set when it is no member any more
    request: Request | None = None  # that is not answered, or not for the last time
    forward: float = 0.0  # seconds of the passes of `request` so far


class RoundThread:
    """Writes texts together. Thread-safe."""

    def __init__(self, rounds: Rounds, clock: Callable[[], float], deliver: Callable[[], None]) -> None:
        """`clock`: in seconds.
        `deliver`: called after answers were reported, once for each pass.
        """
        self._rounds, self._clock, self._deliver = rounds, clock, deliver
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._members: dict[RoundText, RoundMember] = {}
        self._opening: list[tuple[TokenEngine, Request]] = []  # prefills for the next pass
        self._untold: list[tuple[RoundMember, Answer, Draft]] = []
        self._thread = threading.Thread(target=self._run, name="rounds", daemon=True)
        self._thread.start()

    def write(self, member: RoundMember) -> None:
        """Write a text to its end. Raises `member.error`: of the engine, of the session, or any error of drafting."""
        self._calls.put(partial(self._join, member))
        member.over.wait()
        if member.error is not None:
            raise member.error

    def open(self, engine: TokenEngine, request: Request) -> None:
        """Submit a prefill with the next pass, so that the other texts do not wait for a separate one."""
        self._calls.put(partial(self._opening.append, (engine, request)))

    def cancel(self, member: RoundMember) -> None:
        """End a text."""
        self._calls.put(partial(self._end, member, disconnected()))

    def stop(self) -> None:
        """End the thread. No text must be written any more."""

        def end() -> None:
            raise _Stopped

        self._calls.put(end)
        self._thread.join()

    def _run(self) -> None:
        waits: float | None = 0.0  # how long to wait for a call; None: until there is one
        while True:
            try:
                with suppress(Empty):
                    while True:
                        call = self._calls.get_nowait() if waits == 0.0 else self._calls.get(timeout=waits)
                        waits = 0.0
                        call()
                waits = self._act()
            except _Stopped:
                return
            except Exception as error:  # a bug of ours: the texts go on without drafts, the next ones are tried again
                _log.exception("a round failed")
                self._rounds.failed()
                for member in list(self._members.values()):
                    self._end(member, error)
                waits = 0.0

    def _act(self) -> float | None:
        """Begin the pass that is due. Returns how long to wait for a call; None: until there is one."""
        due = self._rounds.next(self._clock())
        if isinstance(due, DraftPass):
            self._draft(due)
            return 0.0
        if isinstance(due, TargetPass):
            self._judge(due)
            self._tell()
            return 0.0
        self._tell()
        if not self._members:
            self._submit()
        wake = self._rounds.wake_at
        return None if wake is None else max(0.0, wake - self._clock())

    def _join(self, member: RoundMember) -> None:
        if member.over.is_set():  # cancelled
            return
        self._members[member.text] = member
        self._rounds.join(member.text)

    def _submit(self, requests: Sequence[tuple[TokenEngine, Request]] = ()) -> None:
        """Submit the requests of a pass, with the prefills that wait for one."""
        submitted = [*requests, *self._opening]
        self._opening.clear()  # the same list: calls that `open` has queued append to it
        for engine in dict.fromkeys(engine for engine, _ in submitted):
            engine.submit(*(request for each, request in submitted if each is engine))

    def _draft(self, due: DraftPass) -> None:
        members, began = [self._members[each] for each in due.texts], self._clock()
        try:
            proposals, read = self._proposals(due, members)
        except Exception as error:  # of any type: an engine's own, out of memory, a bug of ours
            self._rounds.failed()
            for member in members:
                member.error = error
                self._rounds.leave(member.text)
                if member.request is None:  # else its answer is reported first
                    self._end(member, error)
            return
        now = self._clock()
        self._rounds.drafted(proposals, read, began, now)
        for member in members:
            member.drafted(now - began)

    def _proposals(self, due: DraftPass, members: Sequence[RoundMember]) -> tuple[Sequence[Proposal | None], int]:
        """The proposals of a draft pass, and how many tokens it read."""
        if due.source is DraftSource.HEAD:
            found = dict[RoundMember, Proposal | None]()
            asked = [
                (member, HeadQuestion(member.session, len(member.text.text.known), tail, steps=due.steps))
                for member, tail in zip(members, due.tails, strict=True)
            ]
            for engine in dict.fromkeys(member.engine for member in members):
                own = [each for each in asked if each[0].engine is engine]
                answers = engine.ask_head([question for _, question in own])
                found |= dict(zip((member for member, _ in own), answers, strict=True))
            return [found[member] for member in members], len(members)
        expansions = expand_together(
            [
                (member.drafter, member.text.text.known, tail)
                for member, tail in zip(members, due.tails, strict=True)
                if member.drafter is not None
            ]
        )
        return [each.proposals[0] for each in expansions], sum(each.read for each in expansions)

    def _judge(self, due: TargetPass) -> None:
        requests = []
        for text, draft in zip(due.texts, due.drafts, strict=True):
            member = self._members[text]
            if member.request is not None:
                if due.plain:
                    continue
                member.request.cancelled = True
            # While nothing is drafted, the engine need not wait for this thread.
            member.forward = 0.0
            member.request = request = Request(member.session, draft, admitted=True, until_end=due.plain)
            request.done = partial(self._on_answer, member, request)
            requests.append((member.engine, request))
        self._submit(requests)

    def _on_answer(self, member: RoundMember, request: Request, result: Answer | SpecPairError) -> None:
        """Called in the engine's thread."""
        self._calls.put(partial(self._answered, member, request, result))

    def _answered(self, member: RoundMember, request: Request, result: Answer | SpecPairError) -> None:
        if member.over.is_set() or request is not member.request:
            return  # what a request in its place is answered with has these tokens, too
        if isinstance(result, SpecPairError):
            self._end(member, result)
            return
        if request.until_end:  # its times are those of all its passes
            forward, queue = result.forward - member.forward, 0.0 if member.forward else result.queue
            member.forward, result = result.forward, replace(result, forward=forward, queue=queue)
        else:
            member.request = None
        if member.error is None:
            self._rounds.answered(member.text, result, self._clock())
        draft = Draft(result.position) if request.until_end else request.draft
        self._untold.append((member, result, draft))
        if member.error is not None or result.finish_reason is not None:
            self._tell()
            self._end(member, member.error)

    def _tell(self) -> None:
        """Report answers, after the pass that is due has begun."""
        untold, self._untold = self._untold, []
        for member, answer, draft in untold:
            member.report(answer, draft)
        if untold:
            self._deliver()

    def _end(self, member: RoundMember, error: BaseException | None) -> None:
        """Remove `member` from the rounds."""
        if not member.over.is_set():
            if member.request is not None:
                member.request.cancelled = True
            self._rounds.leave(member.text)
            self._members.pop(member.text, None)
            member.error = error
            member.over.set()
