"""Decides how the answers to a request are read (thoughts, calls of tools), and which grammar they keep to.

The chat template, the request and the setting decide. Calls may be required, allowed or forbidden; a grammar may
begin after the thoughts.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gateway.openai_api.answer import AnswerForm, Markers, markers_of, markers_to_read
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.texts import Target
from gateway.openai_api.tools.grammar import Schema, calls_grammar, literal_of
from gateway.openai_api.tools.styles import NOTATIONS, Style, style_of
from specpair.engines.vocabulary import Kind, PromptSpan, Vocabulary
from specpair.grammar.keywords import keyword_path
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import LONGEST_GRAMMAR
from specpair.speculation.sampling.processors import BIAS

_style_of = lru_cache(maxsize=8)(style_of)  # it looks through the whole template
_log = logging.getLogger(__name__)


def answer_form_of(
    message: ChatRequest, target: Target, prompt: Sequence[PromptSpan], style: Style | None, *, whole: bool
) -> AnswerForm:
    """How the answers to a conversation are read.

    `prompt`: the rendered chat template.
    `style`: how the model writes calls; None: as its template shows.
    `whole`: whether a call is told only when it has ended.
    """
    tools = {tool.function.name: tool.schema_ for tool in message.callable_tools}
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
    """Whether thoughts are possible: a grammar allows them only if it begins after them."""
    if not message.has_grammar or message.callable_tools:  # that of calls does, too
        return True
    if message.grammar_after:
        return message.grammar_after == markers.end
    return begun and target.vocabulary.token_of(markers.end) is not None


async def kept_to(message: ChatRequest, form: AnswerForm, target: Target, style: Style) -> dict[str, Any]:
    """Further options of the texts.

    `form`: how they are read.
    `style`: how the model writes calls.

    Raises InvalidRequest for parameters without a grammar.
    """
    if message.has_grammar and not message.callable_tools:
        if form.markers is None:
            return {}
        return {"grammar_after": form.markers.end}
    if message.tools and not message.callable_tools:
        return _without_calls(message, style, target.vocabulary)
    free = not message.must_call and message.document is None
    some = len(message.callable_tools) < len(message.tools or ())  # the prompt shows others
    if free and not some and not any(tool.strict for tool in message.callable_tools):
        return {}
    grammar = await asyncio.to_thread(_calls, message, form, target, style, free)  # many tools take long
    if grammar is not None and len(grammar) > LONGEST_GRAMMAR:
        also = "" if message.document is None else " and the JSON Schema of the text"
        raise InvalidRequest(
            f"tools: a grammar of them{also} has {len(grammar)} characters, at most {LONGEST_GRAMMAR} are taken: send "
            "fewer, or leave strict and tool_choice out",
            param="tools",
        )
    return {} if grammar is None else {"grammar": grammar}


def _without_calls(message: ChatRequest, style: Style, vocabulary: Vocabulary) -> dict[str, Any]:
    """Options that forbid calls, if calls begin with a control token of their own."""
    begins = {token for text in NOTATIONS[style].anywhere if (token := vocabulary.token_of(text)) is not None}
    biases = {int(token): bias for token, bias in message.bias.items()} | dict.fromkeys(begins, -BIAS)
    return {"logit_bias": biases} if begins else {}


def _calls(message: ChatRequest, form: AnswerForm, target: Target, style: Style, free: bool) -> str | None:
    """The Lark grammar of an answer with calls; None: it forbids nothing. Thoughts may precede it.

    `free`: whether any text may replace a call.
    """
    document = None if message.must_call else message.document
    if not free and style is _style_of(target.chat_template) is Style.JSON:
        _say_foreign(target.name)
    writing, tools = NOTATIONS[style].writing(), _tools(message, form)
    markers, thoughts = _control_tokens(writing.tokens, target.vocabulary), markers_of(target.chat_template)
    try:
        grammar = calls_grammar(writing, tools, markers, parallel=not form.one_call, free=free, document=document)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # parameters may be any JSON
        raise InvalidRequest(
            "tools: calls cannot be made to keep to the parameters: those of a tool are no JSON Schema", param="tools"
        ) from None
    if grammar is None or free or thoughts is None or message.grammar_after:
        return grammar  # what is free may have thoughts, too
    return _behind(grammar, thoughts, target.vocabulary, begun=form.begun)


@lru_cache(maxsize=8)
def _say_foreign(model: str) -> None:
    _log.warning(
        "the chat template of %s shows no style of calls that is known here: calls that must come are JSON, which the "
        "model may not have learned; --tool-style names another style",
        model,
    )


def of_tools(error: InvalidRequest, message: ChatRequest) -> InvalidRequest:
    """Rewrite an error of such a grammar: the request named tools, and perhaps a JSON Schema that the text may keep to
    in place of calls, but no grammar."""
    kind, _, said = error.message.partition(": ")
    if kind != "grammar":
        return error
    why = said.partition("failed to compile JSON schema: ")[2] or said
    schemas = {} if message.document is None else {"json_schema": message.document}
    callable_tools = message.callable_tools
    tools = [(at, tool) for at, tool in enumerate(message.tools or ()) if tool in callable_tools]
    for at, tool in tools:
        if message.must_call or tool.function.strict:
            schemas[f"tools.{at}.function.parameters"] = tool.function.parameters
    for name, schema in schemas.items():
        if place := keyword_path(json.dumps(schema), why):
            return InvalidRequest(f"{name}{place}: {why}", param=name)
    custom = [f"tools.{at}.custom.format" for at, tool in tools if tool.type == "custom"]
    name, what = (custom[0], "the grammar") if len(custom) == 1 else ("tools", "the parameters")
    return InvalidRequest(f"{name}: calls cannot be made to keep to {what}: {why}", param=name)


def _tools(message: ChatRequest, form: AnswerForm) -> Mapping[str, Schema | None]:
    """The schemas of calls, by tool. If calls are optional, only strict tools have a schema.

    None: any arguments fit.
    """
    named = message.named_tool
    if named is not None:
        return {named: form.tools[named]}
    if message.must_call:
        return form.tools
    return {
        tool.function.name: form.tools[tool.function.name] if tool.strict else None for tool in message.callable_tools
    }


def _behind(grammar: str, thoughts: Markers, vocabulary: Vocabulary, *, begun: bool) -> str:
    """A grammar with thoughts before it. `begun`: the prompt has begun them; otherwise they may be missing."""
    control = _control_tokens(thoughts.texts, vocabulary)
    begin, end, behind = (literal_of(text, control) for text in thoughts.texts)
    lazy = "" if thoughts.end in control else "[lazy]"
    start = "start: thoughts answer" if begun else f"start: ({begin} thoughts)? answer"
    rules = [
        start,
        f"thoughts: ended {behind if thoughts.behind else 'BLANK'}",
        f"ended{lazy}: TEXT {end}",
        r"BLANK: /\s*/",
    ]
    return "\n".join([*rules, grammar.replace("start:", "answer:", 1)])


def _control_tokens(spelled: Iterable[str], vocabulary: Vocabulary) -> dict[str, int]:
    """The control tokens among these texts, and those of gpt-oss, of several of which a text may be made."""
    found = {text: vocabulary.token_of(text) for text in (*spelled, *NOTATIONS[Style.HARMONY].writing().tokens)}
    return {
        text: token for text, token in found.items() if token is not None and vocabulary.kinds[token] == Kind.CONTROL
    }
