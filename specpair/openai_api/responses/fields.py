"""The fields that objects of requests for responses may have beside those that are used; see `messages.fields`."""

from specpair.openai_api.messages.fields import INSTEAD, OF_A_PROVIDER, OF_A_REPLY, SERVICE, Beside

_ITEM = (*(name for name in OF_A_REPLY if name != "type"), *OF_A_PROVIDER, "phase", "namespace", "caller", "async")
_SERVICE = tuple(name for name in SERVICE if name not in ("metadata", "store", "parallel_tool_calls"))

TABLE: dict[str, Beside] = {
    "ResponseRequest": Beside(
        (*_SERVICE, "stream_options", "include", "client_metadata"),
        {
            "background": (False,),
            "background_options": ({},),
            "context_management": ([],),
            "conversation": ("",),
            "image": ({},),
            "max_tool_calls": (),
            "moderation": (),
            "prompt": ({},),
            "truncation": ("disabled",),
            "access_programs": ({},),
        },
        instead=INSTEAD
        | dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens")
        | {"messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning.effort"},
    ),
    "ResponseText": Beside(only={"verbosity": ("medium",)}),
    "ResponseTextFormat": Beside(OF_A_PROVIDER),
    "ResponseReasoning": Beside(
        only={
            "summary": ("auto",),
            "generate_summary": ("auto",),
            "context": ("auto",),
            "mode": ("standard",),
        }
    ),
    "InputMessage": Beside(_ITEM),
    "InputText": Beside(_ITEM, {"detail": ("auto",)}),
    "InputReasoning": Beside((*_ITEM, "encrypted_content")),
    "InputThoughts": Beside(_ITEM),
    "InputCall": Beside((*_ITEM, "parsed_arguments")),
    "InputCallOutput": Beside((*_ITEM, "name")),
    "ResponseTool": Beside(
        OF_A_PROVIDER,
        {"defer_loading": (False,), "allowed_callers": (["direct"],), "output_schema": ({},), "async": (False,)},
    ),
    "ResponseToolChoice": Beside(OF_A_PROVIDER),
}
