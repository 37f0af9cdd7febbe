"""Server-side drafting by the engine itself: an engine that commits tokens may also propose them, as vLLM can."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_source import rounds
from specpair.speculation.draft import Draft
from verifier_server.engine.port import EngineInfo, TokenEngine
from verifier_server.engine.requests import Answer, OnAnswer, Request
from verifier_server.generation.drafting import DraftCounts
from verifier_server.sessions import Session


class Proposer(NamedTuple):
    """What drafts in an engine. What it takes is part of the engine's passes."""

    name: str
    slots: int
    step_time: float = 0.0
    failure: str | None = None


class EngineDrafting:
    """Has the engine generate texts. It is a `Drafting`."""

    def __init__(self, info: EngineInfo) -> None:
        """`info`: of an engine that proposes tokens."""
        self.draft = Proposer(info.proposer or "", info.slots)

    def start(
        self,
        engine: TokenEngine,
        session: Session,
        length: int | None,
        counts: DraftCounts,
        position: int,
        on_answer: OnAnswer,
        prediction: Sequence[int] | None = None,
    ) -> Callable[[], None]:
        """See `Drafting`. The engine decides the `length`; a `prediction` is not used."""
        if length is not None:
            raise InvalidRequest(
                f"draft_n: the {engine.info.name} engine drafts by itself here, by settings of its own: leave it out",
                param="draft_n",
            )

        def counted(result: Answer | Exception) -> None:
            if isinstance(result, Answer) and result.position > session.prompt_len:
                for each in rounds(result.details.sources):
                    counts.count(JudgedRound(each.judged, each.accepted))
            on_answer(result)  # type: ignore[arg-type]

        request = Request(session, Draft(position), counted, until_end=True, proposes=True)
        engine.submit(request)

        def cancel() -> None:
            request.cancelled = True

        return cancel
