"""The fields that objects of requests for responses may have beside those that are used; see `messages.fields`."""

from gateway.openai_api.messages.fields import INSTEAD, NO_TEXT, OF_A_PROVIDER, OF_A_REPLY, SERVICE, Beside

_ITEM = (*(name for name in OF_A_REPLY if name != "type"), *OF_A_PROVIDER, "phase", "namespace", "caller", "async")
_SERVICE = tuple(name for name in SERVICE if name not in ("metadata", "store"))

TABLE: dict[str, Beside] = {
    "ResponseRequest": Beside(
        (*_SERVICE, "stream_options", "client_metadata", "max_tool_calls"),  # of hosted tools, of which none is taken
        {
            "background": (False,),
            "background_options": ({},),
            "context_management": ([],),
            "conversation": ("",),
            "image": ({},),
            "moderation": (),
            "prompt": ({},),
            "truncation": ("disabled",),
            "access_programs": ({},),
        },
        instead=INSTEAD
        | dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens")
        | {"messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning.effort"},
        hints={
            "background": "wait for the response, or read it as a stream, and leave background out",
            "conversation": "go on with previous_response_id, or send the whole conversation as input",
            "prompt": "send its text as instructions and input",
            "context_management": "leave it out, and send a shorter conversation where one is too long",
        },
    ),
    "ResponseText": Beside(only={"verbosity": ("medium",)}),
    "ResponseTextFormat": Beside(OF_A_PROVIDER),
    "ResponseReasoning": Beside(
        only=dict.fromkeys(("summary", "generate_summary", "context"), ("auto",)) | {"mode": ("standard",)}
    ),
    "InputMessage": Beside(_ITEM),
    "InputText": Beside(_ITEM, {"detail": ("auto",)}, hints=NO_TEXT),
    "InputReasoning": Beside((*_ITEM, "encrypted_content")),
    "InputThoughts": Beside(_ITEM),
    "InputCall": Beside((*(name for name in _ITEM if name != "namespace"), "parsed_arguments")),
    "InputCallOutput": Beside((*_ITEM, "name")),
    "ResponseTool": Beside(
        OF_A_PROVIDER,
        {"defer_loading": (False,), "allowed_callers": (["direct"],), "output_schema": ({},), "async": (False,)},
    ),
    "ResponseNamespace": Beside(OF_A_PROVIDER),
    "ResponseToolChoice": Beside(OF_A_PROVIDER),
}
