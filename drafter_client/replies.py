"""What a verifier answers, as types."""

from dataclasses import dataclass
from typing import Any

from backends.vocabulary import Fingerprint


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the verifier serves."""

    name: str
    context_length: int
    max_drafts: int
    pass_ms: list[float]  # what a pass over 1, 2, … tokens takes it; may be empty
    self_continue: bool  # whether it can go on by itself
    vocabulary: Fingerprint
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Opened:
    """A session after its prefill: the prompt's ids and the tokens generated so far."""

    session_id: str
    prompt_ids: list[int]
    tokens: list[int]
    finish_reason: str | None
    sampling: dict[str, Any]
    queue_ms: float
    forward_ms: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer to a guess: committed tokens from its position on, and where the time went on the server."""

    accepted: int
    judged: int
    tokens: list[int]
    finish_reason: str | None
    queue_ms: float
    forward_ms: float
    sessions: int = 1  # that shared the pass
