"""Examples for the OpenAPI document, made with the small model that ships. A test parses each with its message type."""

from specpair.http_service.openapi.operation import Json
from specpair.protocol.errors import UnknownSession

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
VERIFIED = {
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
TEXT = {
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
    "sampling": TEXT["sampling"],
}

PREFILLS: dict[str, Json] = {
    "prompt": {"session_id": "demo", "prompt": "def main(", "max_tokens": 40, "seed": 1},
    "self-continuation": {"prompt_ids": [0, 511, 2133, 9], "max_tokens": 12, "self_continue": True},
}
VERIFIES: dict[str, Json] = {
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
}
BATCHES: dict[str, Json] = {
    "two sessions": {
        "items": [
            {"session_id": "a", "position": 5, "draft_tokens": [13, 222, 99]},
            {"session_id": "b", "position": 5, "draft_tokens": []},
        ]
    }
}
GENERATES: dict[str, Json] = {
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
}

PREFILLED: Json = {
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
BATCHED: Json = {"results": [VERIFIED, UnknownSession("no session c").body()]}
MODEL: Json = {
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
}
VOCABULARY: Json = {
    "size": 3,
    "begin": 0,
    "ends": [1],
    "end": 1,
    "kinds": "110",
    "pieces": ["<s>", "</s>", "\u00c3\u00a9"],
}
SESSION: Json = {
    "session_id": "demo",
    "prompt_len": 4,
    "total_tokens": 8,
    "finish_reason": None,
    "resident": True,
    "prompt_read": 4,
}

_END: Json = {"total_tokens": 8, "finish_reason": "length"}
NEWS: tuple[tuple[str, Json], ...] = (
    ("tokens", {"position": 5, "tokens": [13, 222, 19], "sources": "ttt", "own": True, "forward_ms": 1.1}),
    ("end", _END),
)
TEXT_EVENTS: tuple[tuple[str, Json], ...] = (
    ("open", _OPENED),
    ("tokens", {"position": 4, "tokens": [798, 13, 774], "sources": "bbb", "text": "string, text"}),
    ("tokens", {"position": 7, "tokens": [13, 222, 1021], "sources": "bbb", "text": ", 100"}),
    ("end", TEXT),
)
