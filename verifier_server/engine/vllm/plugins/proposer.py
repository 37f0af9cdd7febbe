"""A proposer that proposes nothing: with it, vLLM reserves room for draft tokens, which come from outside."""

from collections.abc import Sequence
from typing import Any


class NoProposer:
    """Runs in each worker."""

    def __init__(self, vllm_config: Any) -> None:
        """Nothing is kept of the configuration."""

    def load_model(self, *arguments: Any, **named: Any) -> None:
        """There is no model."""

    def propose(self, sampled: Sequence[Any], *arguments: Any, **named: Any) -> list[list[int]]:
        """No draft token for any of the texts."""
        return [[] for _ in sampled]
