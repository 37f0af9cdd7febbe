"""The input of a fleet, conversations by their start, and its output: records of requests, samples of verifiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation.

    `prompt_tokens`: the new ones of this turn, at least 1; the texts before it are in the prompt as well.
    `output_tokens`: of the answer, at least 1.
    `think`: seconds that the user waits before it, after the answer before.
    """

    prompt_tokens: int
    output_tokens: int
    think: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """A user's requests, one after the other.

    `name`: tells it from all others of the workload.
    `start`: seconds after the beginning at which the first turn may come; its `think` is added.
    `turns`: at least one.
    `prefix`: how many leading tokens of the first prompt all conversations of the tenant have in common; they are
        counted in its `prompt_tokens`.
    """

    name: str
    start: float
    turns: tuple[Turn, ...]
    tenant: str = ""
    prefix: int = 0

    def new_tokens(self, number: int) -> int:
        """How many tokens of the prompt are new in turn `number`, the shared ones not counted; at least 1."""
        return max(1, self.turns[number].prompt_tokens - (0 if number else self.prefix))


class Status(StrEnum):
    """How a request ended."""

    WHOLE = "whole"  # all its tokens came
    REFUSED = "refused"  # with its answer, its text is longer than any verifier's context
    FAILED = "failed"  # its device waited too long for an overloaded verifier
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
    nodes: list[str] = field(default_factory=list)  # the verifier that wrote it
    times: list[float] = field(default_factory=list)  # when each output token was known
    drafted: int = 0  # draft tokens that were judged
    accepted: int = 0  # of these
    over: float = 0.0  # when it was over; if it is unfinished, when the simulated time was

    @property
    def text_tokens(self) -> int:
        """Tokens of the prompt and the whole answer."""
        return self.prompt_tokens + self.output_tokens

    @property
    def first(self) -> float:
        """The time at which the first token was known."""
        return self.times[0]

    @property
    def end(self) -> float:
        """The time at which the last token was known."""
        return self.times[-1]

    @property
    def ttft(self) -> float:
        """Time to the first token; the wait for a free device is a part of it."""
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        """Mean time of an output token behind the first; 0 if there is none."""
        return (self.end - self.first) / (len(self.times) - 1) if len(self.times) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A verifier at a moment, in seconds since the beginning."""

    at: float
    node: str
    kind: str
    waiting: int  # requests that wait for a pass
    held: int  # slots in use
    slots: int
    passes: int  # since the beginning, as the next three
    busy: float  # seconds of passes
    rows: int  # sequences of all passes
    tokens: int  # tokens of all passes


class FleetObserver(Protocol):
    """The observer of a fleet."""

    def record(self, record: Record) -> None:
        """Take in a request that has ended."""

    def sample(self, samples: Sequence[Sample]) -> None:
        """Take in a sample of all verifiers at one moment."""
