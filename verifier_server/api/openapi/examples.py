"""Examples for the OpenAPI document, made with the small model that ships. A test parses each with its message type."""

import json

from gateway.anthropic_api.examples import EXAMPLES as ANTHROPIC
from gateway.openai_api.openapi.examples import EXAMPLES as OPENAI
from specpair.http_service.openapi import state
from specpair.http_service.openapi.document import Examples
from specpair.http_service.openapi.operation import Json
from specpair.protocol.errors import UnknownSession

_SESSION = {
    **{"session_id": "demo", "prompt_len": 4, "total_tokens": 8, "finish_reason": None},
    **{"resident": True, "prompt_read": 4},
}
_TIMING = {"queue_ms": 0.174, "forward_ms": 2.809, "sessions": 1, "tokens": 4}
_SAMPLING = {"seed": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "strategy": "coupled", "noise": "gumbel-1"}
_VOCABULARY = {
    "size": 4096,
    "below": 4096,
    "begin": 0,
    "ends": [1],
    "ordinary": "6ecfc6e16cd8",
    "control": "0751ec91fe17",
    "text": "9788380536d9",
}
_IDENTITY = "3f2a9c0d1b7e48aa-88a1c3f0"
_VERIFIED = {
    "position": 5,
    "accepted_prefix_len": 2,
    "judged": 3,
    "tokens": [13, 222, 19],
    "preds": [13, 222, 19],
    "sources": "aar",
    "total_tokens": 8,
    "finish_reason": None,
    "timing": _TIMING,
}
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
    "sources": "bbbbbb",
}
_OPENED = {
    "session_id": "text-1",
    "prompt_len": 4,
    "position": 4,
    "identity": _IDENTITY,
    "sampling": _TEXT["sampling"],
}

_REQUESTS: dict[str, dict[str, Json]] = {  # by schema, then by name
    "PrefillRequest": {
        "prompt": {"session_id": "demo", "prompt": "def main(", "max_tokens": 40, "seed": 1},
        "self-continuation": {"prompt_ids": [0, 511, 2133, 9], "max_tokens": 12, "self_continue": True},
    },
    "VerifyRequest": {
        "draft": {"session_id": "demo", "position": 5, "draft_tokens": [13, 222, 99]},
        "one step of plain decoding": {"session_id": "demo", "position": 5, "draft_tokens": []},
        "a tree: 20 and 222 follow 13, 21 follows 222": {
            "session_id": "demo",
            "position": 8,
            "draft_tokens": [13, 18, 20, 222, 21],
            "draft_parents": [1, 2, 2, 3, 1],
        },
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
}

_PREFILLED: Json = {
    "session_id": "demo",
    "prompt_len": 4,
    "prompt_ids": [0, 511, 2133, 9],
    "position": 4,
    "tokens": [18],
    "total_tokens": 5,
    "finish_reason": None,
    "model": "stdlib-target-q8_0",
    "identity": _IDENTITY,
    "vocabulary": _VOCABULARY,
    "sampling": _SAMPLING,
    "self_continue": False,
    "timing": _TIMING,
    "sources": "b",
}
_RESPONSES: dict[str, Json] = {  # by schema
    "PrefillResponse": _PREFILLED,
    "VerifyResponse": _VERIFIED,
    "BatchResponse": {"results": [_VERIFIED, UnknownSession("no session c").body()]},
    "GenerateResponse": _TEXT,
    "ModelInfo": {
        "model": "stdlib-target-q8_0",
        "identity": _IDENTITY,
        "backend": "llama_cpp",
        "context_length": 2048,
        "rows": 16,
        "kv_bytes": 134217728,
        "max_draft_tokens": 64,
        "pass_ms": [0.983, 0.984, 1.597],
        "strategies": ["coupled", "deterministic", "greedy", "probabilistic", "threshold"],
        "self_continue": True,
        "modes": ["target", "fused"],
        "predictions": True,
        "draft_model": "stdlib-target-q4_0",
        "draft_pass_ms": 0.292,
        "threads": 0,
        "machine": "c9b8a7f6e5d4c3b2a190817263544536",
        "noise": "gumbel-1",
        "vocabulary": _VOCABULARY,
        "chat_template": None,
    },
    "VocabularyResponse": {
        "size": 3,
        "begin": 0,
        "ends": [1],
        "end": 1,
        "kinds": "110",
        "pieces": ["<s>", "</s>", "\u00c3\u00a9"],
    },
    "SessionsResponse": {"sessions": [_SESSION]},
    "SessionInfo": _SESSION,
    "DeletedResponse": {"session_id": "demo", "deleted": True},
}

_NEWS = (
    ("tokens", '{"position":5,"tokens":[13,222,19],"sources":"ttt","own":true,"forward_ms":1.1}'),
    ("end", '{"total_tokens":8,"finish_reason":"length"}'),
)
_EVENTS: dict[str, tuple[tuple[str, str], ...]] = {  # by path: event names and data of one stream
    "/prefill": (("open", json.dumps(_PREFILLED, separators=(",", ":"))), *_NEWS),
    "/generate": (
        ("open", json.dumps(_OPENED, separators=(",", ":"))),
        ("tokens", '{"position":4,"tokens":[798,13,774],"sources":"bbb","text":"string, text"}'),
        ("tokens", '{"position":7,"tokens":[13,222,1021],"sources":"bbb","text":", 100"}'),
        ("end", json.dumps(_TEXT, separators=(",", ":"))),
    ),
    "/events": (
        (
            "state",
            '{"status":"ready","reason":null,"progress":null,"began_at":1788000000.25,"identity":"' + _IDENTITY + '",'
            '"sessions":3,"sessions_in_use":2,"most_sessions":1024,"most_waiting":256,"generated_tokens":4182,'
            '"engine":{"waiting":1,"running":2,"slots":16,"slots_in_use":2,"cached_tokens":931,"kept_tokens":240,'
            '"context_length":2048,"evictions":0}}',
        ),
        (
            "sessions",
            '{"sessions":[{"number":7,"session_id":"demo","key":"alice","mode":"remote","prompt_tokens":4,'
            '"prompt_read":4,"generated":31,"most_tokens":40,"drafted":36,"accepted":25,"in_use":true,"resident":true,'
            '"finish_reason":null,"took_ms":812.5}],"more":0}',
        ),
        ("usage", json.dumps(state.RESPONSES["UsageResponse"], separators=(",", ":"))),
        (
            "passes",
            '{"passes":[{"ended_ms":91823.4,"took_ms":41.2,"queue_ms":0.2,"sessions":2,"tokens":11,"prefilled":0,'
            '"judged":9,"accepted":7,"committed":9}]}',
        ),
        (
            "ended",
            '{"sessions":[{"number":7,"session_id":"demo","key":"alice","mode":"remote","prompt_tokens":4,'
            '"prompt_read":4,"generated":40,"most_tokens":40,"drafted":45,"accepted":32,"in_use":true,"resident":false,'
            '"finish_reason":"length","took_ms":1021.3}],"more":0}',
        ),
    ),
    "/sessions/{session_id}/stream": _NEWS,
}

EXAMPLES = Examples(
    {**_REQUESTS, **OPENAI.requests, **ANTHROPIC.requests},
    {**state.RESPONSES, **_RESPONSES, **OPENAI.responses, **ANTHROPIC.responses},
    {**_EVENTS, **OPENAI.events, **ANTHROPIC.events},
)
