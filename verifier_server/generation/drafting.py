"""Server-side drafting (mode fused): its port, what is counted of such texts, and drafting by the engine itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from specpair.numbers import milliseconds
from specpair.protocol.errors import InvalidRequest
from specpair.protocol.responses import Speculation
from specpair.speculation.acceptance.round_counts import JudgedRound, RoundCounts
from specpair.speculation.acceptance.token_details import rounds
from specpair.speculation.draft import Draft
from verifier_server.engine.port import EngineInfo, TokenEngine
from verifier_server.engine.requests import Answer, OnAnswer, Request
from verifier_server.sessions import Session


@dataclass(slots=True)
class DraftCounts(RoundCounts):
    """Draft statistics of one text. Counted by its thread, read after its last answer."""

    draft_model: str = ""
    predicted: bool = False  # whether the request has a prediction of the text
    drafting: float = 0.0  # seconds spent on draft steps
    failure: str | None = None  # why drafting ended before the text did

    def body(self) -> Speculation:
        """The statistics, as in replies."""
        rate, length = self.acceptance_rate, self.mean_acceptance_length
        return Speculation(
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
            acceptance_rate=None if rate is None else round(rate, 4),
            mean_acceptance_length=None if length is None else round(length, 3),
            accepted_per_position=self.accepted_per_position,
            looked_up=self.looked_up,
            looked_up_accepted=self.looked_up_accepted,
            prediction_accepted=self.prediction_accepted if self.predicted else None,
            prediction_rejected=self.prediction_rejected if self.predicted else None,
            from_grammar=self.from_grammar,
            drafting_ms=milliseconds(self.drafting),
            draft_failure=self.failure,
        )


class FusedDrafter(Protocol):
    """What drafts."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int:
        """Texts that it drafts for at once."""

    @property
    def step_time(self) -> float:
        """Seconds of a draft step."""

    @property
    def failure(self) -> str | None:
        """Why the latest draft step failed; None if it succeeded."""


class FusedGenerator(Protocol):
    """Generates texts that the server both drafts and verifies. Thread-safe."""

    @property
    def draft(self) -> FusedDrafter: ...

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
        """Generate a text when its turn comes; `on_answer` gets each answer. Returns a function that cancels
        the text for good: then another request can generate in the session.

        `length`: the draft length; None: it is chosen here.
        `position`: where the first answer begins.
        `prediction`: token ids that the text may have; None: there is none.

        Raises InvalidRequest for a `length` or a `prediction` that cannot be used.
        """


class Proposer(NamedTuple):
    """What drafts in an engine. What it takes is part of the engine's passes."""

    name: str
    slots: int
    step_time: float = 0.0
    failure: str | None = None


class EngineDrafting:
    """Has the engine generate texts. It is a `FusedGenerator`."""

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
        """See `FusedGenerator`. The engine decides the `length`; a `prediction` is not used."""
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
