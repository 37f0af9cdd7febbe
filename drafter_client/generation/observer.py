"""What a run tells while it is under way: the tokens to whoever reads them, and all that happens to an observer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drafter_client.http.responses import PrefillResponse, VerifyResponse
from drafter_client.metrics.token_source import SourceChange, TokenSource
from drafters.base import Expansion
from speculation.acceptance.decisions import Decision
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that are certain, in order, each with its origin, and why it is there, where that was asked for."""

    tokens: list[tuple[int, TokenSource]]
    decisions: list[Decision] | None = None


class Observer(Protocol):
    """Is told what happens in a run, as it happens: from several threads, never from two at once.

    Times are milliseconds on the run's clock. Whoever calls waits, and so does the pair: keep it short.
    """

    def began(self, now: float) -> None:
        """The run began."""

    def opened(self, opened: PrefillResponse, asked: float, now: float) -> None:
        """The answer to the prompt came, which was sent at `asked`."""

    def drafted(self, expansion: Expansion, took: float, now: float) -> None:
        """A draft step ended."""

    def sent(self, in_flight_draft: InFlightDraft, schedule: Schedule) -> None:
        """A guess leaves."""

    def answered(self, in_flight_draft: InFlightDraft, response: VerifyResponse, brought: int, now: float) -> None:
        """Its answer came, and with it the first news of `brought` tokens."""

    def went_on(self, forward_ms: float, now: float) -> None:
        """The verifier has told of a pass of its own."""

    def committed(self, position: int, committed: Committed, now: float) -> None:
        """Tokens from `position` on became known."""

    def settled(self, changes: Sequence[SourceChange]) -> None:
        """Tokens turned out to be of another origin than was told when they became known."""
