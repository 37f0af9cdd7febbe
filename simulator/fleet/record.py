"""What is known of each request when it is over."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Record:
    """A request: one turn of a conversation. Times in seconds, as its user sees them."""

    conversation: str
    turn: int
    tenant: str
    prompt_tokens: int  # all, those of the turns before included
    output_tokens: int  # wanted
    sent: float
    nodes: list[str] = field(default_factory=list)  # that wrote it, one after the other
    times: list[float] = field(default_factory=list)  # when each output token was known
    drafted: int = 0  # draft tokens that were judged
    accepted: int = 0  # of these

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
        """Time to the first token."""
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        """Time of an output token behind the first, in the mean; 0 if there is none."""
        return (self.end - self.first) / (len(self.times) - 1) if len(self.times) > 1 else 0.0
