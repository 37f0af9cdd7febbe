"""Bodies of other programs: in every object, what is about the request is taken, and what changes the text refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat import completion_create_params as chat_params
from openai.types.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.openai_api.messages.fields import EMPTY, TABLE
from gateway.openai_api.messages.objects import Object, read_request
from gateway.openai_api.messages.options import GenerationRequest
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.messages.thinking import ThinkingFields
from gateway.openai_api.responses.requests import ResponseRequest
from specpair.protocol.errors import InvalidRequest

Json = dict[str, Any]
USER = {"role": "user", "content": "U"}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL: Json = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLS: Json = {"role": "assistant", "tool_calls": [CALL]}
WRONG_CALL = CALL | {"function": {"name": "f", "x": 1}}


def _kinds(base: type[Object]) -> Iterator[type[Object]]:
    for each in base.__subclasses__():
        yield each
        yield from _kinds(each)


BASES = (GenerationRequest, ThinkingFields)
KINDS = {each.__name__: each for each in _kinds(Object) if each.__name__[0] != "_" and each not in BASES}


def _chat(**given: Any) -> ChatRequest:
    return read_request(ChatRequest, json.dumps({"messages": [USER]} | given).encode())


def _said(**message: Any) -> Json:
    """A message between two others, as the template gets it."""
    return _chat(messages=[USER, message, USER]).messages[1].for_template()


def test_the_tables_have_every_kind_of_object() -> None:
    assert TABLE.keys() == KINDS.keys()
    for name, beside in TABLE.items():
        others = [*beside.ignored, *beside.hints, *beside.only, *beside.also, *beside.instead]
        assert not set(others) & KINDS[name].model_fields.keys(), name
        assert len(set(beside.ignored)) == len(beside.ignored) and not set(beside.ignored) & beside.only.keys(), name


@pytest.mark.parametrize(
    ("schema", "asked"),
    [
        (ChatRequest, chat_params.CompletionCreateParamsBase),
        (CompletionRequest, CompletionCreateParamsBase),
        (ResponseRequest, ResponseCreateParamsBase),
        (MessagesRequest, MessageCreateParamsBase),
        (CountRequest, MessageCountTokensParams),
    ],
)
def test_every_parameter_of_the_clients_is_decided(schema: type[Object], asked: type) -> None:
    beside = TABLE[schema.__name__]
    known = {*schema.model_fields, *beside.ignored, *beside.hints, *beside.only}
    assert set(asked.__annotations__) - known == set()


PART = {"type": "text", "text": "U"}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("lm-evaluation-harness", USER | {"type": "text"}),
        ("CodeCompanion", USER | {"id": 19, "opts": {"visible": False}}),
        ("CodeCompanion", USER | {"_meta": {"cycle": 1, "id": 7}, "context": {"id": "<buf>"}}),
        ("Copilot", USER | {"copilot_cache_control": {"type": "ephemeral"}}),
        ("prompt caching", USER | {"content": [PART | {"cache_control": {"type": "e"}}]}),
        ("OpenAI, caching", USER | {"content": [PART | {"prompt_cache_breakpoint": {}}]}),
        ("LangChain", USER | {"content": [PART | {"id": "lc_1", "index": 0}]}),
    ],
)
def test_what_is_about_the_request_is_taken_in_messages(program: str, message: Json) -> None:
    said = _said(**message)
    assert said == USER or said["content"] == [PART]


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": ""},
        {"provider_specific_fields": {}},
        {"provider_specific_fields": {"refusal": None}, "thinking_blocks": [{"type": "thinking", "signature": "x"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
        {"annotations": [{"type": "url_citation"}], "parsed": {"a": 1}, "refusal": None, "audio": None},
        {"refusal": "", "function_call": None, "images": []},
        {"id": "msg_1", "type": "message", "status": "completed", "model": "m", "created": 1, "logprobs": None},
        {"prefix": False, "partial": False},
        {"tool_calls": []},
        {"name": None, "tool_call_id": None},
    ],
    ids=lambda more: "-".join(more),
)
def test_an_answer_of_another_server_is_taken_back(more: Json) -> None:
    sent = {"role": "assistant", "content": "A"}
    assert {name: value for name, value in _said(**sent, **more).items() if value} == sent


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_goes_to_the_template(name: str) -> None:
    assert _said(role="assistant", content="A", **{name: "because"})[name] == "because"


@pytest.mark.parametrize("content", [None, "", "A", [], [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]])
def test_content_stays_as_it_was_sent(content: Any) -> None:
    assert _said(role="assistant", content=content)["content"] == content
    assert "content" not in _said(role="assistant", tool_calls=[CALL])


@pytest.mark.parametrize("arguments", ['{"a": 1}', "", {"a": {"b": [1, "ü"]}}])
def test_arguments_of_calls_stay_as_they_were_sent(arguments: Any) -> None:
    call = CALL | {"function": {"name": "f", "arguments": arguments}}
    streamed = call | {"index": 0, "extra_content": {"google": {"thought_signature": "x"}}, "caller": None}
    parsed = {**call, "function": call["function"] | {"parsed_arguments": {"a": 1}, "strict": True}}
    for sent in (call, streamed, parsed):
        assert _said(role="assistant", content=None, tool_calls=[sent])["tool_calls"] == [call]


@pytest.mark.parametrize(
    "asked",
    [
        {"logprobs": False, "top_logprobs": 0},
        {"top_logprobs": 0},
        {"n": 3, "best_of": 3},
        {"n": 3, "best_of": 1},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [TOOL], "response_format": {"type": "json_object"}},
        {"functions": [], "function_call": "none"},
        {"tools": None, "tool_choice": {"type": "auto"}, "modalities": ["text"], "service_tier": "flex"},
        {"frequency_penalty": 0.0, "presence_penalty": None, "response_format": {"type": "text"}},
        {"stream_options": {"include_usage": False}},
        {"stream_options": {}},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False, "anything": False}},
        {"reasoning": {}, "documents": [], "guided_regex": "", "anything": ""},
        {"echo": False, "include_reasoning": True, "add_generation_prompt": True},
        {"mirostat": 0, "mirostat_tau": 5, "dry_multiplier": 0, "dry_base": 1.75, "repeat_penalty": 1.0},
        {"store": True, "metadata": {"a": "b"}, "safety_identifier": "u", "verbosity": "medium"},
        {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"}, "parallel_tool_calls": True},
    ],
    ids=lambda asked: "-".join(asked),
)
def test_what_asks_for_nothing_is_taken(asked: Json) -> None:
    assert _chat(**asked).top_logprobs_wanted is None


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": [TOOL, TOOL | {"function": {"name": "f", "description": "other"}}]}, "tools"),
        ({"tools": [TOOL | {"x": 1}]}, "tools.0.x"),
        ({"tools": [{"type": "function", "function": {"name": "<|im_end|>"}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "custom", "custom": {"name": "f", "x": 1}}]}, "tools.0.function.x"),
        ({"tools": [TOOL], "regex": "a"}, "regex"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": [{"name": "g"}]}}, "tool_choice"),
        ({"max_tokens": 5, "n_predict": 6}, "n_predict"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"do_sample": False}, "do_sample"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"reasoning_format": "x"}, "reasoning_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "x": 1}}},
            "response_format.json_schema.x",
        ),
        ({"structured_outputs": {"json_object": True, "structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"temperatur": 1}, "temperatur"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"stream": True, "stream_options": {"anything": True}}, "stream_options.anything"),
        ({"prediction": {"type": "content", "content": "x", "weight": 2}}, "prediction.weight"),
        ({"messages": [USER | {"images": ["aGk="]}]}, "messages.0.images"),
        ({"messages": [USER | {"prefix": True}]}, "messages.0.prefix"),
        ({"messages": [USER, {"role": "assistant", "content": "A", "refusal": "No."}]}, "messages.1.refusal"),
        ({"messages": [{"role": "user"}]}, "messages.0"),
        ({"messages": [USER | {"content": [PART | {"language": "de"}]}]}, "messages.0.content.0.language"),
        ({"messages": [CALLS | {"tool_calls": [CALL | {"x": 1}]}]}, "messages.0.tool_calls.0.x"),
        ({"messages": [CALLS | {"tool_calls": [WRONG_CALL]}]}, "messages.0.tool_calls.0.function.x"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_would_change_the_text_is_refused_by_name(given: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _chat(**given)
    assert refused.value.details["param"] == param and refused.value.message.startswith(f"{param}: ")


OPTIONAL = ("response_format", "prediction", "logit_bias", "tools", "reasoning", "stream_options", "max_tokens")
HIGH, LOW = {"reasoning_effort": "high"}, {"reasoning_effort": "low"}
OFF, ON = {"enable_thinking": False}, {"enable_thinking": True}


@pytest.mark.parametrize(
    ("asked", "known", "variables"),
    [
        ({"thinking_budget": 64}, "thinking_budget", {"thinking_budget": 64}),
        ({"thinking_budget": -1}, "thinking_budget", {}),
        (HIGH, "reasoning_effort", HIGH),
        (HIGH | {"chat_template_kwargs": LOW}, "reasoning_effort", LOW),
        (HIGH, "enable_thinking", {}),
        ({"reasoning": {"effort": "high"}}, "reasoning_effort", HIGH),
        ({"think": "high"}, "thinking_effort", {"thinking_effort": "high"}),
        *((off, "enable_thinking", OFF) for off in (OFF, {"thinking": {"type": "disabled"}}, {"think": False})),
        *((off, "thinking", {"thinking": False}) for off in (OFF, {"chat_template_kwargs": OFF}, {"think": False})),
        ({"reasoning": {"effort": "none"}}, "enable_thinking", OFF),
        ({"reasoning": {"enabled": False}}, "enable_thinking", OFF),
        ({"reasoning_effort": "none"}, "thinking", {"thinking": False}),
        ({"thinking": {"type": "disabled"}}, "thinking_budget", {"thinking_budget": 0}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9.0}}, "thinking_budget", {"thinking_budget": 9}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "enable_thinking", ON),
        ({"reasoning_budget": 0}, "enable_thinking", OFF),
        ({"reasoning": {"max_tokens": 64}}, "thinking_budget", {"thinking_budget": 64}),
        ({"thinking": {"type": "adaptive"}}, "enable_thinking", {}),
        ({"chat_template_kwargs": {"x": 1}}, "x", {"x": 1}),
    ],
)
def test_thoughts_are_controlled_in_the_spellings_of_providers(asked: Json, known: str, variables: Json) -> None:
    assert _chat(**asked).template_variables((known,)) == variables


@pytest.mark.parametrize(
    ("asked", "name", "value"),
    [
        *(({name: 16.0}, "limit", 16) for name in ("max_tokens", "max_completion_tokens", "n_predict", "num_predict")),
        *(({name: -1}, "limit", None) for name in ("max_tokens", "max_completion_tokens", "max_new_tokens")),
        ({"max_tokens": 5, "n_predict": 5.0}, "limit", 5),
        ({"n": 2.0}, "choices", 2),
        ({"seed": 5.0}, "seed", 5),
        ({"random_seed": 5}, "seed", 5),
        ({"logprobs": True, "top_logprobs": 3.0}, "top_logprobs_wanted", 3),
        ({"speculative": {"draft_n": 4.0}}, "speculative.draft_n", 4),
        ({"stop": ""}, "stops", []),
        ({"stop": ["", "a", ""]}, "stops", ["a"]),
        ({"stop_sequences": ["a"]}, "stops", ["a"]),
        ({"guided_regex": "[0-9]"}, "regex", "[0-9]"),
        *((dict.fromkeys(OPTIONAL, empty), "bias", {}) for empty in EMPTY),
        ({"anything": False, "more": [], "n": None}, "choices", 1),
    ],
)
def test_numbers_limits_and_empty_values_are_read_as_programs_send_them(asked: Json, name: str, value: Any) -> None:
    found: Any = _chat(**asked)
    for each in name.split("."):
        found = getattr(found, each)
    assert found == value and type(found) is type(value)


def test_a_nucleus_of_nothing_is_greedy() -> None:
    (spec,) = _chat(top_p=0.0, temperature=0.7).specs()
    assert (spec.temperature, spec.top_p) == (0.0, 1.0)


NAMED = [
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "name": "f"},
    {"type": "tool", "name": "f"},
]


@pytest.mark.parametrize(
    ("choice", "callable_tools", "must_call"),
    [
        *((choice, "fg", False) for choice in ("auto", {"type": "auto"}, {}, None)),
        *((choice, "", False) for choice in ("none", {"type": "none"})),
        *((choice, "fg", True) for choice in ("any", "required", {"type": "any"}, {"type": "required"}, *NAMED)),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}, "g", False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": NAMED[:1]}}, "f", True),
    ],
)
def test_choices_of_tools_are_read_as_programs_send_them(choice: Any, callable_tools: str, must_call: bool) -> None:
    chat = _chat(tools=[TOOL, {"name": "g"}, TOOL], tool_choice=choice)
    assert [tool.function.name for tool in chat.callable_tools] == [*callable_tools] and chat.must_call == must_call
    assert [tool["function"]["name"] for tool in chat.template_variables(())["tools"]] == ["f", "g"]


FUNCTION = {"name": "f", "description": "D", "parameters": {"type": "object"}}
AS_INPUT = {"name": "f", "description": "D", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        (FUNCTION | {"type": "function", "strict": True}, FUNCTION),
        (AS_INPUT, FUNCTION),
        ({"function": FUNCTION}, FUNCTION),
        ({"type": "function", "strict": True, "function": AS_INPUT}, FUNCTION),
        (
            {"type": "function", "function": {"name": "f", "strict": True}},
            {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}},
        ),
    ],
)
def test_tools_are_read_as_programs_send_them(tool: Json, shown: Json) -> None:
    """Templates get all that they ask of a tool."""
    assert _chat(tools=[tool]).template_variables(())["tools"] == [{"type": "function", "function": shown}]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"role": "user", "content": None}, ""),
        ({"role": "tool", "tool_call_id": "1", "content": None}, ""),
        ({"role": "assistant", "content": None, "refusal": "No."}, "No."),
        ({"role": "user", "content": ["a", {"text": "b"}]}, "ab"),
        *(({"role": "user", "content": [{"type": f"{of}put_text", "text": "a"}]}, "a") for of in ("in", "out")),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "No."),
    ],
)
def test_contents_are_read_as_programs_send_them(message: Json, content: str) -> None:
    said = _said(**message)["content"]
    parts = [{"type": "text", "text": each} for each in content] if isinstance(message["content"], list) else []
    assert said == content or said in (parts, [{"type": "text", "text": content}])
