"""What a run needs of the verifier it drafts for, wherever that is."""

from collections.abc import Callable, Sequence
from typing import Protocol

from specpair.drafters.run.events import Streamed
from specpair.speculation.acceptance.token_details import TokenDetails
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy


class Verified(Protocol):
    """What the verifier says to a draft. Times in seconds."""

    @property
    def tokens(self) -> Sequence[int]:
        """Committed tokens from the draft's position on."""

    @property
    def details(self) -> TokenDetails:
        """What is told of `tokens`."""

    @property
    def accepted(self) -> int:
        """Leading draft tokens that equal committed tokens."""

    @property
    def judged(self) -> int:
        """Draft tokens that the model ran for this draft."""

    @property
    def queue(self) -> float: ...

    @property
    def forward(self) -> float: ...

    @property
    def sessions(self) -> int:
        """Sessions that shared the pass."""

    @property
    def pass_tokens(self) -> int:
        """Tokens of all sessions in the pass; 0: not known."""

    @property
    def finish_reason(self) -> str | None: ...


class Judges(Protocol):
    """Has drafts judged, one at a time. Raises what ends the text."""

    def verify(self, draft: Draft, policy: RejectionPolicy = UNSAID) -> Verified:
        """Have a draft judged.

        `policy`: what the verifier does after a rejection.
        """


class Lane(Judges, Protocol):
    """A way to the verifier, for one exchange at a time. Its methods raise what ends the text."""

    def another(self) -> "Lane":
        """A further one, to be closed by whoever asked for it."""

    def connect(self) -> None:
        """Prepare for the first exchange. An error is raised by that exchange, not here."""

    def listen(self, position: int, report: Callable[[Streamed], None]) -> None:
        """Report committed tokens from `position` on, as they come, until the text has ended, or `abort` is called."""

    def abort(self) -> None:
        """Make the exchange under way fail, and every later one. May be called from any thread."""

    def traffic(self) -> tuple[int, int]:
        """The bytes sent and received so far."""

    def close(self) -> None: ...
