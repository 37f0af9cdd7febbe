"""What users ask for: conversations by their start."""

from dataclasses import dataclass


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
