"""The interface of a core that runs its own steps, and the values that the engine and the core exchange.

A core runs in an event loop in a thread of its own.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import rest_of_chain
from specpair.speculation.sampling.distribution import TokenLogprobs
from verifier_server.engine.arrived_drafts import Request
from verifier_server.engine.sequence_state import LEAD, SILENCE, SequenceState
from verifier_server.sessions import Session

T = TypeVar("T")


class CoreRequest(NamedTuple):
    """How far a core may decode a text, and the draft to judge. Plain values, which vLLM's processes can receive."""

    position: int  # where the draft begins
    draft: list[int] | None  # token ids; None: none is to be judged
    free: int  # the text may be decoded without a draft until it has this many tokens

    def wants_step(self, tokens: Any, total: int) -> bool:
        """Whether the core should run another step for a text of `total` tokens. `tokens`: gives a slice of them."""
        return total < self.free or (self.draft is not None and self._rest(tokens, total) is not None)

    def tail(self, tokens: Any, total: int) -> list[int]:
        """The draft tokens to judge after the first `total` tokens."""
        return self._rest(tokens, total) or []

    def decodes(self, total: int) -> bool:
        """Whether the next step after `total` tokens has no draft, whatever the tokens are."""
        return self.draft is None and total < self.free

    def _rest(self, tokens: Any, total: int) -> list[int] | None:
        """The draft tokens beyond the text's tokens; None: the core need not judge any."""
        if total < self.position:
            return None
        return rest_of_chain(self.draft or [], tokens[self.position : total])


class CoreStep(NamedTuple):
    """What a step did for a text, without its tokens."""

    draft: list[int]  # draft tokens of the request that it judged
    fed: int  # tokens that it read
    seconds: float
    texts: int  # how many texts shared it
    preempted: int = 0  # texts under way that lost their KV cache to others since a step last told of them
    own: int = 0  # draft tokens by the core itself that it judged


class CoreOutput(NamedTuple):
    """The output of a step for a text."""

    name: str
    tokens: list[int]  # committed
    step: CoreStep
    cached: int | None  # with the first tokens: how many tokens before them were not read, as the cache held them
    ended: bool  # whether the core has forgotten the text
    logprobs: list[TokenLogprobs | None] | None = None  # of each token, where the text asks for them
    error: SpecPairError | None = None  # why a text that has ended too early cannot go on, if that is known


class CoreLost(Exception):
    """The core has failed and will not return; the message says what to do."""


class CoreUnreachable(Exception):
    """The core does not answer, may come back by itself, and has forgotten all texts. The message says what is away."""


class Core(Protocol):
    """Decodes texts up to the limits of their requests, and judges drafts. Used in one event loop."""

    async def begin(self, name: str, session: Session, salt: str, wanted: CoreRequest) -> None:
        """Begin a text. Texts with the same `salt` share their prefixes. Raises CoreLost."""

    async def update(self, name: str, wanted: CoreRequest) -> None:
        """Replace the request for a text; nothing happens if the text has ended. Raises CoreLost."""

    async def forget(self, names: Sequence[str]) -> None:
        """Stop texts, and free their KV cache. Raises CoreLost."""

    async def outputs(self) -> list[CoreOutput]:
        """The next step's outputs. Raises CoreLost, and CoreUnreachable once; the next call waits for the core."""

    async def close(self) -> None:
        """Free all resources."""


class LoopThread:
    """A thread with an event loop, from its creation until `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """Cancel all running tasks, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


def core_request(
    sequence: SequenceState, now: float, half_pass: float, max_drafts: int
) -> tuple[CoreRequest, float | None]:
    """The request to the core for a text now, and the seconds until it must be decided again; None: never.

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


def step_request(sequence: SequenceState, judged: Sequence[int]) -> Request | None:
    """The request for which a step ran: it judged its draft, or decoded without one. None: for no request."""
    for request in sequence.requests:
        fresh = request.fresh.ids
        if (fresh[: len(judged)] == list(judged)) if judged else not fresh:
            return request
    return None
