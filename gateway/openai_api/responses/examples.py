"""Examples of the endpoints for responses, with a template of one line."""

import json

from gateway.openai_api.openapi.counted import COUNTED
from specpair.http_service.openapi.operation import Json

_ID = "6c1f8f0c8f0a4f6d9a3b9c1d2e3f4a5b"
_TEXT = "1992(s):\n    try:\n"
_PART: Json = {"type": "output_text", "text": _TEXT, "annotations": [], "logprobs": []}
_MESSAGE: Json = {
    "type": "message",
    "id": f"msg_{_ID}00",
    "status": "incomplete",
    "role": "assistant",
    "content": [_PART],
}
_BEGUN: Json = {
    "id": f"resp_{_ID}",
    "object": "response",
    "created_at": 1795452917,
    "completed_at": None,
    "status": "in_progress",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": "Answer with Python code.",
    "max_output_tokens": 8,
    "metadata": {},
    "model": "stdlib-target-q8_0",
    "output": [],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 0.8,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
}
_RESPONSE: Json = {
    **_BEGUN,
    "completed_at": 1795452917,
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [_MESSAGE],
    "usage": {
        "input_tokens": 8,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16,
    },
    **COUNTED,
}
_INNER: Json = {"item_id": f"msg_{_ID}00", "output_index": 0, "content_index": 0}
_STREAM: tuple[tuple[str, Json], ...] = (
    ("created", {"response": _BEGUN}),
    ("in_progress", {"response": _BEGUN}),
    ("output_item.added", {"output_index": 0, "item": {**_MESSAGE, "status": "in_progress", "content": []}}),
    ("content_part.added", {**_INNER, "part": {**_PART, "text": ""}}),
    ("output_text.delta", {**_INNER, "delta": _TEXT, "logprobs": []}),
    ("output_text.done", {**_INNER, "text": _TEXT, "logprobs": []}),
    ("content_part.done", {**_INNER, "part": _PART}),
    ("output_item.done", {"output_index": 0, "item": _MESSAGE}),
    ("incomplete", {"response": _RESPONSE}),
)

REQUESTS: dict[str, dict[str, Json]] = {
    "ResponseRequest": {
        "question": {
            "instructions": "Answer with Python code.",
            "input": "read a file",
            "max_output_tokens": 8,
            "temperature": 0.8,
        },
        "next question": {
            "input": "and close it",
            "previous_response_id": f"resp_{_ID}",
            "max_output_tokens": 8,
            "stream": True,
        },
        "JSON": {
            "input": [{"role": "user", "content": "a person"}],
            "max_output_tokens": 24,
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "person",
                    "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                }
            },
        },
    }
}
RESPONSES: dict[str, Json] = {
    "ResponseObject": _RESPONSE,
    "ResponseDeleted": {"id": f"resp_{_ID}", "object": "response", "deleted": True},
}
EVENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "/v1/responses": tuple(
        (
            f"response.{name}",
            json.dumps({"type": f"response.{name}", "sequence_number": at, **data}, separators=(",", ":")),
        )
        for at, (name, data) in enumerate(_STREAM)
    )
}
