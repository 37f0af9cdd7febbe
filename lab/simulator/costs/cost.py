"""The interface of cost models, the seconds of a forward pass, and the simplest model, a line."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

from specpair.engines.backend import Entry

# What a pass does for one sequence: (new tokens, tokens in its KV cache before the pass).
SequencePass = tuple[int, int]


class PassCost(Protocol):
    """The cost of forward passes on one engine."""

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        """Seconds of one forward pass over `sequences`; 0.0 for a pass over none.

        Raises CostUnknown for a pass of which the model can say nothing.
        """
        ...


class CostUnknown(ValueError):
    """A pass lies too far from the passes that a cost model knows."""


class BadCost(ValueError):
    """A file or a value for a cost model is invalid. The message names the fault and its location."""


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Time of a forward pass, linear in tokens and sequences, as measured up to about 16 tokens. It is written in
    milliseconds, as the variables `PACED_TARGET` and `PACED_DRAFT` have it."""

    decode_ms: float  # a pass over one token of one sequence
    per_token_ms: float  # added by each further token, of whichever sequence
    per_sequence_ms: float  # added by each further sequence, beside its tokens

    @classmethod
    def parse(cls, text: str) -> "LinearCost":
        """Read "decode_ms,per_token_ms,per_sequence_ms". Raises ValueError for a text of another form."""
        parts = [float(part) for part in text.split(",")]
        if len(parts) != 3 or min(parts) < 0:
            raise ValueError(f"a cost is three numbers, none of them negative, got {text!r}")
        return cls(*parts)

    def __str__(self) -> str:
        return ",".join(f"{part:g}" for part in astuple(self))

    def of(self, batch: Sequence[Entry]) -> float:
        """Seconds of an engine's pass over `batch`."""
        return self.seconds([(len(entry.tokens), entry.start) for entry in batch])

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        """Seconds of a pass over `sequences`: `PassCost`."""
        tokens = sum(new for new, _ in sequences)
        if not tokens:
            return 0.0
        more_tokens, more_sequences = tokens - 1, len(sequences) - 1
        return (self.decode_ms + self.per_token_ms * more_tokens + self.per_sequence_ms * more_sequences) / 1e3
