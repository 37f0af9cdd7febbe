"""The fields that objects of Anthropic's requests may have beside those that are used; see `messages.fields`."""

from gateway.openai_api.messages.fields import INSTEAD, Beside

_CACHE = ("cache_control",)
_KEEP_THOUGHTS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
_REQUEST = Beside(
    (
        *_CACHE,
        *("metadata", "service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id", "diagnostics"),
        *("betas", "anthropic_version"),
    ),
    {
        "container": ({},),
        "context_management": ({"edits": []}, _KEEP_THOUGHTS),
        "mcp_servers": ([],),
        "output_format": ({},),
        "stop": ([],),
    },
    instead=INSTEAD
    | dict.fromkeys(("max_completion_tokens", "max_output_tokens"), "max_tokens")
    | {"response_format": "output_config.format", "reasoning_effort": "output_config.effort"},
)

TABLE: dict[str, Beside] = {
    "MessagesRequest": _REQUEST,
    "CountRequest": _REQUEST,
    "OutputConfig": Beside(only={"task_budget": ({},)}),
    "OutputFormat": Beside(),
    "Thinking": Beside(("display",)),
    "TurnMessage": Beside(("id", *_CACHE)),
    "TextBlock": Beside(_CACHE, {"citations": ([],)}),
    "ThinkingBlock": Beside((*_CACHE, "signature")),
    "RedactedBlock": Beside((*_CACHE, "data")),
    "ToolUseBlock": Beside((*_CACHE, "caller", "toolset_name")),
    "ToolResultBlock": Beside((*_CACHE, "is_error", "toolset_name")),
    "CustomTool": Beside(
        (*_CACHE, "eager_input_streaming"),
        {"defer_loading": (False,), "allowed_callers": (["direct"],), "input_examples": ([],)},
    ),
    "CustomToolChoice": Beside(),
}
