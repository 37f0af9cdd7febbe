"""What an engine asks of a core that decodes by itself: texts by name, up to where each may go, what steps gave.

A core runs in an event loop in a thread of its own.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import rest_of_chain
from specpair.speculation.sampling.distribution import TokenLogprobs
from verifier_server.engine.requests import Request
from verifier_server.engine.sequence_state import LEAD, SILENCE, SequenceState
from verifier_server.sessions import Session

T = TypeVar("T")


class CoreRequest(NamedTuple):
    """Up to where a core may decode a text, and what it is to judge. Plain values: vLLM's are sent to its processes."""

    position: int  # where the draft begins
    draft: list[int] | None  # token ids; None: none is to be judged
    free: int  # the text may be decoded without a draft until it has this many tokens

    def wants_step(self, tokens: Any, total: int) -> bool:
        """Whether another step is to be run for a text of `total` tokens, which `tokens` can be sliced for."""
        return total < self.free or (self.draft is not None and self._rest(tokens, total) is not None)

    def tail(self, tokens: Any, total: int) -> list[int]:
        """What of the draft is to be judged behind `total` tokens."""
        return self._rest(tokens, total) or []

    def decodes(self, total: int) -> bool:
        """Whether the next step for a text of `total` tokens is one without a draft, whatever the tokens are."""
        return self.draft is None and total < self.free

    def _rest(self, tokens: Any, total: int) -> list[int] | None:
        """What of the draft goes beyond the tokens; None: the core need not judge it."""
        if total < self.position:
            return None
        return rest_of_chain(self.draft or [], tokens[self.position : total])


class CoreStep(NamedTuple):
    """What a step did for a text, beside the tokens that it gave."""

    draft: list[int]  # draft tokens that it judged
    fed: int  # tokens that it read
    seconds: float
    texts: int  # how many texts shared it
    preempted: int = 0  # texts under way that lost their KV cache to others since a step last told of them


class CoreOutput(NamedTuple):
    """What a step gave for a text."""

    name: str
    tokens: list[int]  # committed
    step: CoreStep
    cached: int | None  # with the first tokens: how many tokens before them were not read, as the cache held them
    ended: bool  # whether the core has forgotten the text
    logprobs: list[TokenLogprobs | None] | None = None  # of each token, where the text asks for them
    error: SpecPairError | None = None  # why a text that has ended too early cannot go on, if that is known


class CoreLost(Exception):
    """The core is gone for good; the message says what to do."""


class CoreAway(Exception):
    """The core does not answer, may come back by itself, and has forgotten all texts. The message says what is away."""


class Core(Protocol):
    """Decodes texts by itself, as far as it is allowed to, and judges drafts. Used in one event loop."""

    async def begin(self, name: str, session: Session, salt: str, wanted: CoreRequest) -> None:
        """Take in a text. Those of the same `salt` share what they begin with. Raises CoreLost."""

    async def update(self, name: str, wanted: CoreRequest) -> None:
        """Say anew what is wanted of a text; nothing happens if it has ended. Raises CoreLost."""

    async def forget(self, names: Sequence[str]) -> None:
        """Stop texts, and free their KV cache. Raises CoreLost."""

    async def outputs(self) -> list[CoreOutput]:
        """What the next step gave. Raises CoreLost. Raises CoreAway once; the next call returns when it is back."""

    async def close(self) -> None:
        """Give up what it holds."""


class LoopThread:
    """Runs from when it is made until `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """Cancel what runs, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


def wanted_of(
    sequence: SequenceState, now: float, half_pass: float, max_drafts: int
) -> tuple[CoreRequest, float | None]:
    """What is wanted of a text now, and after how many seconds that has to be thought over; None: never.

    `half_pass`: half the time of a pass over one token, in seconds.
    `max_drafts`: draft tokens that the core judges at once.
    """
    session, free, again = sequence.session, 0, None
    if any(request.until_end for request in sequence.requests):
        free = session.limit
    elif not sequence.waits and sequence.may_continue(unread=0) and now - sequence.heard <= SILENCE:
        until = None if sequence.requests else sequence.blocked_until(now, half_pass)
        free = 0 if until is not None else sequence.acknowledged + LEAD
        again = (sequence.heard + SILENCE if until is None else until) - now + 1e-3
    if sequence.requests:
        run, _ = sequence.choose(max_drafts)
        if run.fresh or free <= len(session.tokens):
            begun = session.tokens[run.position : run.fresh.position] if run.fresh else []
            draft = run.draft.ids if run.draft.is_chain else [*begun, *run.fresh.ids]
            return CoreRequest(run.position, draft, free), again
    return CoreRequest(0, None, free), again


def asked_for(sequence: SequenceState, judged: Sequence[int]) -> Request | None:
    """The request whose draft a step has judged, or which asked for a step without a draft; None: it was none."""
    for request in sequence.requests:
        fresh = request.fresh.ids
        if (fresh[: len(judged)] == list(judged)) if judged else not fresh:
            return request
    return None
