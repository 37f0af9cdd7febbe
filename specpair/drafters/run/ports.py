"""What a run needs of the verifier it drafts for, wherever that is."""

from collections.abc import Callable
from typing import Protocol

from specpair.drafters.run.events import Streamed, Verified
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy


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
