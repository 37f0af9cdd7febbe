"""Examples for the OpenAPI document, made with the small model that ships. A test parses each with its message type.

Other replies have examples made of their fields.
"""

from specpair.http_service.openapi.operation import Json

PREFILLS: dict[str, Json] = {
    "prompt": {"session_id": "demo", "prompt": "def main(", "max_tokens": 40, "seed": 1},
    "the next prompt of a chat, which begins like the text of the session demo": {
        "session_id": "next",
        "prompt_ids": [13, 222],
        "prefix": {"session_id": "demo", "length": 5, "hash": "53fd973a24b45f45"},
    },
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

_TIMING = {"queue_ms": 0.174, "forward_ms": 2.809, "sessions": 1, "tokens": 4}
_SAMPLING = {"seed": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "strategy": "coupled", "noise": "gumbel-1"}
PREFILLED: Json = {
    "session_id": "demo",
    "prompt_len": 4,
    "prompt_ids": [0, 511, 2133, 9],
    "position": 4,
    "tokens": [18],
    "total_tokens": 5,
    "finish_reason": None,
    "model": "stdlib-target-q8_0",
    "identity": "3f2a9c0d1b7e48aa-88a1c3f0",
    "vocabulary": {"size": 4096, "below": 4096, "begin": 0, "ends": [1], "ordinary": "6ecfc6e16cd8"}
    | {"control": "0751ec91fe17", "text": "9788380536d9"},
    "sampling": _SAMPLING,
    "self_continue": False,
    "timing": _TIMING,
    "sources": "b",
}
VERIFIED: Json = {
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
TEXT: Json = {
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
