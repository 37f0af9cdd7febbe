"""How the answers to a request are read: by the chat template, the request, and the setting of the service."""

from collections.abc import Sequence
from functools import lru_cache

from specpair.engines.vocabulary import Part
from specpair.openai_api.answers.answer import AnswerForm
from specpair.openai_api.answers.thoughts import THINK, markers_of
from specpair.openai_api.messages.requests import ChatRequest
from specpair.openai_api.tools.styles import Style, style_of

_style_of = lru_cache(maxsize=8)(style_of)  # it looks through the whole template


def form_of(message: ChatRequest, template: str | None, prompt: Sequence[Part], style: Style | None) -> AnswerForm:
    """How the answers to a conversation are read.

    `prompt`: the rendered template.
    `style`: how the model writes calls; None: as its template shows.
    """
    tools = {tool.function.name: tool.function.parameters or {} for tool in message.callable_tools}
    markers = markers_of(template) or THINK
    tail = "".join(part.text for part in prompt[-3:]).rstrip()
    return AnswerForm(
        markers=None if message.has_grammar else markers,  # which begins with the text
        begun=tail.endswith(markers.begin),
        apart=message.thoughts_apart,
        style=(style or _style_of(template)) if tools else None,
        tools=tools,
        whole=not message.stream,
        one_call=message.parallel_tool_calls is False,
    )
