"""What a run reports while it generates: committed tokens for its reader, and every event for an observer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drafter_client.metrics.token_source import SourceChange, TokenSource
from drafters.base import Expansion
from speculation.acceptance.explain import Decision
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft
from speculation.protocol.responses import PrefillResponse, VerifyResponse


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed tokens in order, each id with its token source. `decisions`: one for each token, if requested."""

    tokens: list[tuple[int, TokenSource]]
    decisions: list[Decision] | None = None


class Observer(Protocol):
    """Receives the events of a run as they happen, from several threads, but never from two at once.

    Times are milliseconds on the run's clock; `now` is when the event came. The run waits for each call, so the methods
    have to be fast.
    """

    def began(self, now: float) -> None:
        """The run began."""

    def opened(self, opened: PrefillResponse, asked: float, now: float) -> None:
        """The response to the prefill came; the request was sent at `asked`."""

    def drafted(self, expansion: Expansion, took: float, now: float) -> None:
        """A draft step ended, which took `took` milliseconds."""

    def sent(self, in_flight_draft: InFlightDraft, schedule: Schedule) -> None:
        """A verify request is about to be sent."""

    def answered(self, in_flight_draft: InFlightDraft, response: VerifyResponse, new: int, now: float) -> None:
        """The response to a verify request came; `new` of its tokens were not known before."""

    def target_decoded(self, forward_ms: float, now: float) -> None:
        """The event stream reported a verifier pass of self-continuation, which took `forward_ms` milliseconds."""

    def committed(self, position: int, committed: Committed, now: float) -> None:
        """Tokens from `position` on were committed."""

    def settled(self, changes: Sequence[SourceChange]) -> None:
        """The final sources of these tokens differ from those reported when they were committed."""
