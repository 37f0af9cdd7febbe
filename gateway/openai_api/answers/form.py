"""How the answers to a request are read: by the chat template, the request, and the setting of the service."""

from collections.abc import Sequence
from functools import lru_cache

from gateway.openai_api.answers.answer import AnswerForm
from gateway.openai_api.answers.thoughts import Markers, markers_to_read
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.texts import Target
from gateway.openai_api.tools.styles import Style, style_of
from specpair.engines.vocabulary import PromptSpan

_style_of = lru_cache(maxsize=8)(style_of)  # it looks through the whole template


def form_of(
    message: ChatRequest, target: Target, prompt: Sequence[PromptSpan], style: Style | None, *, whole: bool
) -> AnswerForm:
    """How the answers to a conversation are read.

    `prompt`: the rendered chat template.
    `style`: how the model writes calls; None: as its template shows.
    `whole`: whether a call is told only when it has ended.
    """
    tools = {tool.function.name: tool.function.parameters or {} for tool in message.callable_tools}
    template = target.chat_template
    markers = markers_to_read(template)
    begun = "".join(part.text for part in prompt[-3:]).rstrip().endswith(markers.begin)
    return AnswerForm(
        markers=markers if _may_think(message, target, markers, begun) else None,
        begun=begun,
        apart=message.thoughts_apart,
        style=calling_style(target, style) if tools else None,
        tools=tools,
        whole=whole,
        one_call=message.parallel_tool_calls is False,
    )


def calling_style(target: Target, style: Style | None) -> Style:
    """How the model writes calls. `style`: as above."""
    return style or _style_of(target.chat_template)


def _may_think(message: ChatRequest, target: Target, markers: Markers, begun: bool) -> bool:
    """Whether there may be thoughts: a grammar leaves room for them if it begins behind them."""
    if not message.has_grammar or message.callable_tools:  # that of calls does, too
        return True
    if message.grammar_after:
        return message.grammar_after == markers.end
    return begun and target.vocabulary.token_of(markers.end) is not None
