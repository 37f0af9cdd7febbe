"""What an engine asks of a core that decodes by itself: texts by name, up to where each may go, what steps gave.

A core runs in an event loop in a thread of its own.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from specpair.protocol.errors import SpecPairError
from specpair.speculation.sampling.logprobs import TokenLogprobs
from verifier_server.sessions import Session

T = TypeVar("T")


class Wish(NamedTuple):
    """Up to where a text may be decoded."""

    position: int  # where the draft begins
    draft: list[int] | None  # token ids; None: none is to be judged
    free: int  # the text may be decoded without a draft until it has this many tokens
    proposes: bool = False  # whether what the core proposes by itself is judged, while there is no draft

    def wants_step(self, tokens: Any, total: int) -> bool:
        """Whether another step is to be run for a text of `total` tokens, which `tokens` can be sliced for."""
        return total < self.free or (self.draft is not None and self._tail(tokens, total) is not None)

    def tail(self, tokens: Any, total: int) -> list[int]:
        """What of the draft is to be judged behind `total` tokens."""
        return [] if self.draft is None else self._tail(tokens, total) or []

    def decodes(self, total: int) -> bool:
        """Whether the next step for a text of `total` tokens is one without a draft, whatever the tokens are."""
        return self.draft is None and not self.proposes and total < self.free

    def _tail(self, tokens: Any, total: int) -> list[int] | None:
        """The rest of the draft; None: the tokens answer it, since they contradict it, or hold one token more."""
        draft = self.draft or []
        known = list(tokens[self.position : total])
        if total < self.position or len(known) > len(draft) or known != draft[: len(known)]:
            return None
        return draft[len(known) :]


class Step(NamedTuple):
    """What a step did for a text, beside the tokens that it gave."""

    draft: list[int]  # draft tokens that it judged
    fed: int  # tokens that it read
    seconds: float
    texts: int  # how many texts shared it
    preempted: int = 0  # texts under way that lost their KV cache to others since a step last told of them


class Output(NamedTuple):
    """What a step gave for a text."""

    name: str
    tokens: list[int]  # committed
    step: Step
    cached: int | None  # with the first tokens: how many tokens before them were not read, as the cache held them
    ended: bool  # whether the core has forgotten the text
    logprobs: list[TokenLogprobs | None] | None = None  # of each token, where the text asks for them
    error: SpecPairError | None = (
        None  # why a text that has ended without its last token cannot go on, if that is known
    )


class CoreLost(Exception):
    """The core is gone for good; the message says what to do."""


class CoreAway(Exception):
    """The core does not answer, may come back by itself, and has forgotten all texts. The message says what is away."""


class Core(Protocol):
    """Decodes texts by itself, as far as it is allowed to, and judges drafts. Used in one event loop."""

    async def begin(self, name: str, session: Session, salt: str, wish: Wish) -> None:
        """Take in a text. Those of the same `salt` share what they begin with. Raises CoreLost."""

    async def wish(self, name: str, wish: Wish) -> None:
        """Say anew what is wished for a text; nothing happens if it has ended. Raises CoreLost."""

    async def forget(self, names: Sequence[str]) -> None:
        """Stop texts, and free their KV cache. Raises CoreLost."""

    async def outputs(self) -> list[Output]:
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
