"""What an engine tells its core of a text, and what the core tells of a step. Plain values: vLLM's are sent to its
processes."""

from typing import Any, NamedTuple


class Wish(NamedTuple):
    """Up to where a text may be decoded."""

    position: int  # where the draft begins
    draft: list[int] | None  # token ids; None: none is to be judged
    free: int  # the text may be decoded without a draft until it has this many tokens
    proposes: bool = False  # whether what the core proposes by itself is judged, while there is no draft

    def wants_step(self, tokens: Any, total: int) -> bool:
        """Whether another step is to be run for a text of `total` tokens, which `tokens` can be sliced for."""
        return total < self.free or (self.draft is not None and self._tail(tokens, total) is not None)

    def tail(self, tokens: Any, total: int) -> list[int]:
        """What of the draft is to be judged behind `total` tokens."""
        return [] if self.draft is None else self._tail(tokens, total) or []

    def decodes(self, total: int) -> bool:
        """Whether the next step for a text of `total` tokens is one without a draft, whatever the tokens are."""
        return self.draft is None and not self.proposes and total < self.free

    def _tail(self, tokens: Any, total: int) -> list[int] | None:
        """The rest of the draft; None: the tokens answer it, since they contradict it, or hold one token more."""
        draft = self.draft or []
        known = list(tokens[self.position : total])
        if total < self.position or len(known) > len(draft) or known != draft[: len(known)]:
            return None
        return draft[len(known) :]


class Step(NamedTuple):
    """What a step did for a text, beside the tokens that it gave."""

    draft: list[int]  # draft tokens that it judged
    fed: int  # tokens that it read
    seconds: float
    texts: int  # how many texts shared it
    preempted: int = 0  # texts under way that lost their KV cache to others since a step last told of them
