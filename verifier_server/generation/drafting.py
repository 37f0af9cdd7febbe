"""The port of server-side drafting (mode fused): what generates such texts, and what is counted of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specpair.protocol.responses import Speculation
from specpair.protocol.times import milliseconds
from specpair.speculation.acceptance.round_counts import RoundCounts
from verifier_server.engine.port import TokenEngine
from verifier_server.engine.requests import OnAnswer
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


class Drafts(Protocol):
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


class Drafting(Protocol):
    """Generates texts that the server both drafts and verifies. Thread-safe."""

    @property
    def draft(self) -> Drafts: ...

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
