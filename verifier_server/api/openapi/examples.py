"""Examples for the OpenAPI document, made with the small model that ships. A test parses each with its message type."""

import json
from typing import Any

from speculation import errors

Example = dict[str, Any]

_TIMING = {"queue_ms": 0.174, "forward_ms": 2.809, "sessions": 1}
_SAMPLING = {"seed": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "strategy": "coupled", "noise": "gumbel-1"}
_VOCABULARY = {
    "size": 4096,
    "below": 4096,
    "begin": 0,
    "ends": [1],
    "ordinary": "6ecfc6e16cd8",
    "control": "0751ec91fe17",
}
_VERIFIED = {
    "position": 5,
    "accepted_prefix_len": 2,
    "judged": 3,
    "tokens": [13, 222, 19],
    "preds": [13, 222, 19],
    "total_tokens": 8,
    "finish_reason": None,
    "timing": _TIMING,
}
_UNKNOWN = errors.UnknownSession(
    "no session c: it was never prefilled, was deleted, expired when idle, or made room for another one"
).body()
_TEXT = {
    "session_id": "text-1",
    "text": "string, text, 100",
    "token_ids": [798, 13, 774, 13, 222, 1021],
    "prompt_tokens": 4,
    "generated_tokens": 6,
    "finish_reason": "length",
    "model": "stdlib-target-q8_0",
    "mode": "target",
    "sampling": _SAMPLING | {"seed": 7, "temperature": 0.8},
    "timing": _TIMING,
}
_OPENED = {"session_id": "text-1", "prompt_len": 4, "position": 4, "sampling": _TEXT["sampling"]}

REQUESTS: dict[str, dict[str, Example]] = {  # by schema, then by name
    "PrefillRequest": {
        "prompt": {"session_id": "demo", "prompt": "def main(", "max_tokens": 40, "seed": 1},
        "self-continuation": {"prompt_ids": [0, 511, 2133, 9], "max_tokens": 12, "self_continue": True},
    },
    "VerifyRequest": {
        "draft": {"session_id": "demo", "position": 5, "draft_tokens": [13, 222, 99]},
        "one step of plain decoding": {"session_id": "demo", "position": 5, "draft_tokens": []},
        "with the strategy probabilistic": {
            "session_id": "coins",
            "position": 5,
            "draft_tokens": [13, 222],
            "draft_probs": [{"13": 0.9, "18": 0.1}, {"222": 1.0}],
        },
    },
    "BatchRequest": {
        "two sessions": {
            "items": [
                {"session_id": "a", "position": 5, "draft_tokens": [13, 222, 99]},
                {"session_id": "b", "position": 5, "draft_tokens": []},
            ]
        }
    },
    "GenerateRequest": {
        "target": {"prompt": "def main(", "max_tokens": 6, "temperature": 0.8, "seed": 7},
        "continuation of an interrupted text": {
            "session_id": "text-1",
            "prompt": "def main(",
            "max_tokens": 6,
            "temperature": 0.8,
            "seed": 7,
            "committed_ids": [798, 13, 774],
        },
        "fused, as a stream": {"prompt": "def main(", "max_tokens": 12, "seed": 7, "mode": "fused", "stream": True},
    },
    "TokenizeRequest": {"text": {"text": "def main("}},
}

RESPONSES: dict[str, Example] = {  # by schema
    "PrefillResponse": {
        "session_id": "demo",
        "prompt_len": 4,
        "prompt_ids": [0, 511, 2133, 9],
        "position": 4,
        "tokens": [18],
        "total_tokens": 5,
        "finish_reason": None,
        "model": "stdlib-target-q8_0",
        "vocabulary": _VOCABULARY,
        "sampling": _SAMPLING,
        "self_continue": False,
        "timing": _TIMING,
    },
    "VerifyResponse": _VERIFIED,
    "BatchResponse": {"results": [_VERIFIED, _UNKNOWN]},
    "GenerateResponse": _TEXT,
    "TokenizeResponse": {"token_ids": [0, 511, 2133, 9]},
    "HealthResponse": {"status": "ready", "model": "stdlib-target-q8_0", "sessions": 0},
    "ModelInfo": {
        "model": "stdlib-target-q8_0",
        "backend": "llama_cpp",
        "context_length": 2048,
        "rows": 16,
        "kv_bytes": 134217728,
        "max_draft_tokens": 64,
        "pass_ms": [0.983, 0.984, 1.597],
        "strategies": ["coupled", "deterministic", "greedy", "probabilistic", "threshold"],
        "self_continue": True,
        "modes": ["target", "fused"],
        "draft_model": "stdlib-target-q4_0",
        "draft_pass_ms": 0.292,
        "noise": "gumbel-1",
        "vocabulary": _VOCABULARY,
        "chat_template": None,
    },
    "VocabularyResponse": {
        "size": 3,
        "begin": 0,
        "ends": [1],
        "kinds": "110",
        "pieces": ["<s>", "</s>", "\u00c3\u00a9"],
    },
    "SessionsResponse": {
        "sessions": [
            {"session_id": "demo", "prompt_len": 4, "total_tokens": 8, "finish_reason": None, "resident": True}
        ]
    },
    "DeletedResponse": {"session_id": "demo", "deleted": True},
}

LOADING = {"status": "loading", "progress": 0.4}  # `/health` with status 503
FAILED = {"status": "failed", "reason": "there is no file models/none.gguf"}

EVENTS: dict[str, tuple[tuple[str, str], ...]] = {  # by path: event names and data of one stream
    "/generate": (
        ("open", json.dumps(_OPENED, separators=(",", ":"))),
        ("tokens", '{"position":4,"tokens":[798,13,774],"text":"string, text"}'),
        ("tokens", '{"position":7,"tokens":[13,222,1021],"text":", 100"}'),
        ("end", json.dumps(_TEXT, separators=(",", ":"))),
    ),
    "/sessions/{session_id}/stream": (
        ("tokens", '{"position":5,"tokens":[13,222,19],"own":true,"forward_ms":1.1}'),
        ("end", '{"total_tokens":8,"finish_reason":"length"}'),
    ),
}

_RAISED: tuple[errors.SpecPairError, ...] = (
    errors.InvalidRequest("draft_tokens.0: Input should be a valid integer", param="draft_tokens.0"),
    errors.BodyTooLarge("the body has 67108865 bytes, this verifier takes at most 67108864", limit=67108864),
    errors.RequestTimeout(
        "the body was not complete after 10.0 s (6 bytes had come): send it in 10 s, or at 32 KiB a second"
    ),
    errors.Unauthorized("this verifier wants its key: send the header Authorization: Bearer <key>"),
    errors.Forbidden(
        "this verifier has no key, so it serves this machine and private networks only, and '203.0.113.7' is neither: "
        "start it with VERIFIER_API_KEY=<key> and give the drafter the same with --api-key, or with "
        "VERIFIER_INSECURE=1 to serve everybody without a key"
    ),
    errors.EmptyPrompt("the prompt is empty: give at least one token to continue"),
    errors.PromptTooLong(
        "the prompt has 2048 tokens, the context holds 2048 with the answer: shorten the prompt, or start the verifier "
        "with a larger context",
        prompt_len=2048,
        context_length=2048,
    ),
    errors.TokenOutOfRange(
        "prompt_ids.1: token id 4096 is outside of the vocabulary of 4096 ids", param="prompt_ids.1"
    ),
    errors.TooManyDrafts("65 new draft tokens: this verifier judges at most 64 at once", limit=64),
    errors.UnknownSession(
        "no session demo: it was never prefilled, was deleted, expired when idle, or made room for another one"
    ),
    errors.SessionConflict("session demo was opened with another prefill: use a new session_id"),
    errors.SessionMismatch("X-Session-Id says other, the body says demo"),
    errors.ImplicitSessionRefused(
        "session_id is missing: without one the caller's latest session is meant, which is possible only on loopback "
        "or with an API key"
    ),
    errors.SelfContinueRefused(
        "self_continue: the session was opened without; ask for it in the prefill", param="self_continue"
    ),
    errors.FusedUnavailable("mode fused: this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL"),
    errors.OverlapRefused(
        "another verify of session demo is under way: with the strategy probabilistic the text would depend on timing: "
        "send one at a time"
    ),
    errors.PositionInsidePrompt("position 3 lies inside the prompt of 4 tokens", total_tokens=5),
    errors.PositionBeyondCommitted("position 9 lies beyond the 5 committed tokens", total_tokens=5),
    errors.ModelLoading("the model is loading (40%): wait and ask again", progress=0.4, retry_after=12),
    errors.ModelFailed("the model could not be loaded: there is no file models/none.gguf"),
    errors.Overloaded("256 requests are already waiting: try again later", retry_after=2),
    errors.ShuttingDown("the verifier is shutting down: ask again when it is back"),
    errors.EngineError("the engine failed: out of memory"),
    errors.InternalError("a fault of the verifier (ZeroDivisionError): see its log"),
)
ERRORS: dict[type[errors.SpecPairError], Example] = {type(error): error.body() for error in _RAISED}
