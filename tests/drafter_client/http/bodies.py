"""Bodies of a verifier's replies, as a test needs them."""

import json
from collections.abc import Sequence
from typing import Any

from backends.scripted import ByteVocabulary
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.response_fields import FinishReason, Response, SamplingReport, Timing
from specpair.protocol.responses import PrefillResponse, VerifyResponse
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_details import marks_of, split
from specpair.speculation.text_options import TextSpec

TIMING = Timing(queue_ms=0.5, forward_ms=1.5, sessions=1)
SAMPLING = SamplingReport.of(TextSpec(seed=0))


def body(response: Response) -> dict[str, Any]:
    """The JSON object of a response."""
    read: dict[str, Any] = json.loads(response.body())
    return read


def model_info(**changed: Any) -> ModelInfo:
    """A verifier with the toy vocabulary."""
    vocabulary: Fingerprint = ByteVocabulary().fingerprint
    info: dict[str, Any] = {
        "name": "honest",
        "identity": "",
        "engine": "scripted",
        "context_length": 1024,
        "rows": 4,
        "kv_bytes": 0,
        "max_drafts": 8,
        "pass_ms": [1.0, 1.5],
        "strategies": [*map(str, Strategy)],
        "self_continue": True,
        "modes": ["target"],
        "predictions": True,
        "draft_model": None,
        "draft_pass_ms": None,
        "noise": "gumbel-1",
        "vocabulary": vocabulary,
        "chat_template": None,
    }
    return ModelInfo(**info | changed)


def prefilled(prompt_ids: list[int], tokens: list[int], known: int = 0, **changed: Any) -> PrefillResponse:
    """The response to a prefill with `known` committed tokens."""
    position = len(prompt_ids) + known
    opened: dict[str, Any] = {
        "session_id": "s",
        "prompt_len": len(prompt_ids),
        "prompt_ids": prompt_ids,
        "position": position,
        "tokens": tokens,
        "total_tokens": position + len(tokens),
        "finish_reason": None,
        "model": "honest",
        "identity": "",
        "vocabulary": ByteVocabulary().fingerprint,
        "sampling": SAMPLING,
        "self_continue": False,
        "timing": TIMING,
        "sources": split("b" * len(tokens)),
    }
    return PrefillResponse(**opened | changed)


def verified(
    tokens: Sequence[int],
    accepted: int = 0,
    judged: int = 0,
    *,
    position: int = 10,
    unjudged: int = 0,
    finish_reason: FinishReason | None = None,
    queue_ms: float = 0.5,
    forward_ms: float = 1.5,
    sessions: int = 1,
) -> VerifyResponse:
    """The response to a verify request, which brings its own pass only."""
    sources = marks_of([True] * accepted + [False] * (len(tokens) - accepted), judged) if tokens else []
    return VerifyResponse(
        position=position,
        accepted=accepted,
        judged=judged,
        unjudged=unjudged,
        tokens=list(tokens),
        preds=list(tokens),
        sources=sources,
        total_tokens=position + len(tokens),
        finish_reason=finish_reason,
        timing=Timing(queue_ms=queue_ms, forward_ms=forward_ms, sessions=sessions),
    )
