"""The log line of a text that has ended: how many tokens, how fast, and why it ended. Never its words."""

import logging
from dataclasses import dataclass
from typing import Any

from specpair.counted import counted
from specpair.http_service.observability.logs import FIELDS, of_session

_log = logging.getLogger("specpair.texts")
INTERRUPT = "interrupt"  # what a text was ended by whose client left
DELETION = "deletion"  # what a text was ended by whose session was deleted, as drafters do after Ctrl-C, too


@dataclass(frozen=True, slots=True)
class LogLine:
    """The line of a text that ended.

    `seconds`: from its request to its last token.
    `mode`: which machine drafted.
    `reason`: the error that ended it; empty: none did.
    """

    prompt_tokens: int
    generated_tokens: int
    seconds: float
    drafted: int
    accepted: int
    mode: str
    ended_by: str
    reason: str = ""

    def log(self, session_id: str = "") -> None:
        """Write the line. `session_id`: of the text, where no request is current."""
        rate = self.generated_tokens / self.seconds if self.seconds > 0 else None
        share = self.accepted / self.drafted if self.drafted else None
        extra: dict[str, Any] = of_session(session_id) if session_id else {}
        extra[FIELDS] = {
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "tokens_per_second": None if rate is None else round(rate, 2),
            "acceptance_rate": None if share is None else round(share, 4),
            "mode": self.mode,
            "ended_by": self.ended_by,
        }
        if self.reason:
            extra[FIELDS]["reason"] = self.reason
        _log.info(
            "%s, %s tokens/s, acceptance rate %s, mode %s, ended by %s",
            counted(self.generated_tokens, "token"),
            "-" if rate is None else f"{rate:.1f}",
            "-" if share is None else f"{share:.1%}",
            self.mode,
            f"{self.ended_by}: {self.reason}" if self.reason else self.ended_by,
            extra=extra,
        )
