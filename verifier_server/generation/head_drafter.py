"""Drafts for one text by the target's own head, token by token, for texts that are not written in rounds."""

from collections.abc import Callable, Sequence

from specpair.drafters.base import Expansion
from specpair.speculation.drafting.tree import Proposal
from verifier_server.engine.head_drafts import HeadQuestion
from verifier_server.engine.interface import TokenEngine
from verifier_server.sessions import Session


class HeadDrafter:
    """A `Drafter` of the engine's text `session`."""

    width = 1

    def __init__(self, engine: TokenEngine, session: Session) -> None:
        self._engine, self._session = engine, session

    def read_prompt(
        self, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
    ) -> int:
        """As `base.read_prompt`. The head has read what the target has."""
        return 0

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        found = self._engine.ask_head([HeadQuestion(self._session, len(text), tails[0], runners_up)])[0]
        if found is None:  # a proposal needs a token; one of confidence 0 is never sent
            found = Proposal(tails[0][-1] if tails[0] else text[-1], 0.0)
        return Expansion([found], 1)
