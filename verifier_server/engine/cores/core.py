"""What an engine asks of a core: texts by name, what is wished for them, what steps gave."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specpair.protocol.errors import SpecPairError
from specpair.speculation.sampling.logprobs import TokenLogprobs
from verifier_server.engine.cores.wish import Step, Wish
from verifier_server.sessions import Session


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
