"""What is known of each request when it is over."""

from dataclasses import dataclass, field
from enum import StrEnum

from lab.simulator.virtual.timeline import Timeline


class Status(StrEnum):
    """How a request ended."""

    WHOLE = "whole"  # all its tokens came
    ABORTED = "aborted"  # its device left before
    REFUSED = "refused"  # with its answer, its text is longer than any verifier's context
    FAILED = "failed"  # its device waited too long for a verifier that is away or overloaded
    UNFINISHED = "unfinished"  # the simulated time was over before


@dataclass(slots=True)
class Record:
    """A request: one turn of a conversation. Times in seconds, as its user sees them.

    One that is not whole may have no tokens; then it has no `first`, no `end` and no `ttft`.
    """

    conversation: str
    turn: int
    tenant: str
    prompt_tokens: int  # all, those of the turns before included
    output_tokens: int  # wanted
    sent: float  # when the user asked
    status: Status = Status.WHOLE
    device: str = ""  # the kind of its device; "": it had none, or the kind has no name
    waited: float = 0.0  # for a free device
    nodes: list[str] = field(default_factory=list)  # that wrote it, one after the other
    times: list[float] = field(default_factory=list)  # when each output token was known
    drafted: int = 0  # draft tokens that were judged
    accepted: int = 0  # of these
    over: float = 0.0  # when it was over; if it is unfinished, when the simulated time was
    last: bool = True  # whether it is the conversation's last one
    by_table: bool | None = None  # whether a drafter by table wrote it; False: a probe; None: neither is there

    timeline: Timeline | None = None  # its spans; None: they were not noted

    @property
    def text_tokens(self) -> int:
        """Of the prompt and the whole answer."""
        return self.prompt_tokens + self.output_tokens

    @property
    def first(self) -> float:
        """When its first token was known."""
        return self.times[0]

    @property
    def end(self) -> float:
        """When its last token was known."""
        return self.times[-1]

    @property
    def ttft(self) -> float:
        """Time to the first token; the wait for a free device is a part of it."""
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        """Time of an output token behind the first, in the mean; 0 if there is none."""
        return (self.end - self.first) / (len(self.times) - 1) if len(self.times) > 1 else 0.0
