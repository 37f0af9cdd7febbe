"""Calls of tools with OpenAI's own client and types, at both ends, whole and streamed."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from backends.scripted import ByteVocabulary
from gateway.openai_api.answer import PLAIN
from gateway.openai_api.answer_form import kept_to
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.texts import Target
from gateway.openai_api.tools.styles import Style
from specpair.engines.vocabulary import Kind
from tests.gateway.openai_api.parrot import ADD, LOOK, SWITCH, TEMPLATE, TOOLS, asked, called, client_of, parrots


@pytest.fixture(scope="module", params=["target", "drafter"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(kind: str) -> Iterator[openai.OpenAI]:
    with parrots(kind) as url, client_of(url) as client:
        yield client


def answer(client: openai.OpenAI, text: str, *, stream: bool, **options: Any) -> ChatCompletion:
    """The answer `text`, put together by the client if it is streamed."""
    given = asked(text, **{"tools": TOOLS} | options)
    if not stream:
        return client.chat.completions.create(**given)
    with client.chat.completions.stream(**given) as streamed:
        return streamed.get_final_completion()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (LOOK, None, [("look", {"town": "Köln"})]),
        (f"{LOOK}\n{ADD}", None, [("look", {"town": "Köln"}), ("add", {"a": 1, "b": 2})]),
        (f"I look.\n{LOOK}", "I look.", [("look", {"town": "Köln"})]),
        ("No call.", "No call.", []),
        ("<tool_call>\nno call", "<tool_call>\nno call", []),
        (LOOK.replace("look", "unknown"), LOOK.replace("look", "unknown"), []),
    ],
)
def test_calls_and_content(client: openai.OpenAI, stream: bool, text: str, content: str | None, calls: Any) -> None:
    choice = answer(client, text, stream=stream).choices[0]
    assert called(choice.message) == calls and (choice.message.content or None) == content
    assert choice.finish_reason == ("tool_calls" if calls else "stop")


def test_a_call_comes_in_deltas(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**asked(f"Well. {LOOK}{ADD}", tools=TOOLS, stream=True)))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert all(len(delta.tool_calls or []) <= 1 and not (delta.tool_calls and delta.content) for delta in deltas)
    for index, name in enumerate(("look", "add")):
        first, *others = (call for call in calls if call.index == index)
        assert first.id and first.type == "function" and first.function is not None
        assert (first.function.name, first.function.arguments) == (name, "")
        assert len(others) > 5 and all(call.id is None and call.function and call.function.arguments for call in others)
    assert "".join(delta.content or "" for delta in deltas) == "Well. "
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "tool_calls"]
    assert chunks[-1].choices[0].delta.tool_calls is None


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_ends_behind_one_call_if_they_may_not_be_parallel(client: openai.OpenAI, stream: bool) -> None:
    done = answer(client, f"{LOOK}\n{ADD}", stream=stream, parallel_tool_calls=False)
    assert called(done.choices[0].message) == [("look", {"town": "Köln"})]
    assert done.choices[0].finish_reason == "tool_calls"
    if done.usage is not None:
        assert done.usage.completion_tokens <= len(LOOK.encode())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [ADD[:8], ADD[:39], ADD[:49]], ids=["marker", "name", "arguments"])
def test_a_limit_cuts_a_call(client: openai.OpenAI, stream: bool, cut: str) -> None:
    """What was cut is content, but in a stream what was told of the call."""
    given = asked(f"{LOOK}\n{ADD}", tools=TOOLS, max_tokens=len(LOOK.encode()) + 1 + len(cut))
    if not stream:
        choice = client.chat.completions.create(**given).choices[0]
        assert called(choice.message) == [("look", {"town": "Köln"})] and choice.finish_reason == "length"
        assert (choice.message.content or "").strip() == cut
        return
    chunks = list(client.chat.completions.create(**given, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    told = [call.function for chunk in chunks for call in chunk.choices[0].delta.tool_calls or [] if call.index == 1]
    if told:
        written = "".join(each.arguments or "" for each in told if each)
        assert told[0] and told[0].name == "add" and not content
        content = f'<tool_call>\n{{"name": "add", "arguments": {written}'
    assert content.strip() == cut and bool(told) == ("{" in cut[20:])


def test_stop_strings_logprobs_and_n(client: openai.OpenAI) -> None:
    given = asked(f"I look.\n{LOOK}\n{ADD}", tools=TOOLS, n=2, logprobs=True, stop=['"name": "add"'])
    done = client.chat.completions.create(**given)
    assert [choice.index for choice in done.choices] == [0, 1]
    ids = set()
    for choice in done.choices:
        assert called(choice.message) == [("look", {"town": "Köln"})] and choice.finish_reason == "tool_calls"
        assert choice.message.content == "I look.\n<tool_call>\n{" or choice.message.content == "I look.<tool_call>\n{"
        assert choice.logprobs is not None and choice.logprobs.content is not None
        written = b"".join(bytes(each.bytes or []) for each in choice.logprobs.content)
        assert written.decode() == f"I look.\n{LOOK}\n" + "<tool_call>\n{"
        ids |= {call.id for call in choice.message.tool_calls or []}
    assert len(ids) == 2


def test_with_the_choice_none_the_prompt_goes_on_from_the_turn_before(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": LOOK}]
    first = client.chat.completions.create(model="", messages=said, tools=TOOLS, seed=1)
    said.append(first.choices[0].message.model_dump(exclude_none=True))
    said += [{"role": "tool", "tool_call_id": "1", "content": "12"}, {"role": "user", "content": "Done."}]
    last = client.chat.completions.create(model="", messages=said, tools=TOOLS, tool_choice="none", seed=1)
    assert last.choices[0].message.content == "Done." and first.usage and last.usage
    details = last.usage.prompt_tokens_details
    assert details and details.cached_tokens and details.cached_tokens >= first.usage.prompt_tokens - 1
    path = f"{client.base_url}".removesuffix("v1/") + "apply-template"
    before, now = (
        httpx.post(path, json={"messages": messages, "tools": TOOLS, "tool_choice": choice}).json()["prompt"]
        for messages, choice in ((said[:1], "auto"), (said, "none"))
    )
    assert now.startswith(before)


def test_with_the_choice_none_no_token_begins_a_call() -> None:
    vocabulary = ByteVocabulary(259)
    vocabulary.pieces[258], vocabulary.kinds[258] = b"<tool_call>", Kind.CONTROL
    target = Target("", vocabulary, 512, 8, TEMPLATE)
    given: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "logit_bias": {"5": 1}}
    none, auto = (ChatRequest(**given, tool_choice=choice) for choice in ("none", "auto"))
    kept, other, free = (
        asyncio.run(kept_to(message, PLAIN, target, style))
        for message, style in ((none, Style.HERMES), (none, Style.LLAMA), (auto, Style.HERMES))
    )
    assert kept == {"logit_bias": {5: 1, 258: -100}}
    assert other == free == {}


def test_the_setting_overrules_the_style_of_the_template(kind: str) -> None:
    text = '{"name": "add", "parameters": {"a": 1, "b": 2}}'
    with parrots(kind, style=Style.LLAMA) as url, client_of(url) as client:
        assert called(answer(client, text, stream=False).choices[0].message) == [("add", {"a": 1, "b": 2})]
        marked = LOOK.replace("\n", "")
        assert answer(client, marked, stream=False).choices[0].message.content == marked


CHOICES: list[Any] = ["required", {"type": "function", "function": {"name": "switch"}}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", CHOICES, ids=["required", "named"])
def test_a_call_that_must_come_is_valid(client: openai.OpenAI, stream: bool, choice: Any) -> None:
    tools = [SWITCH] if choice == "required" else [*TOOLS, SWITCH]
    for seed in (1, 2):
        done = answer(
            client, "No!", stream=stream, tools=tools, tool_choice=choice, seed=seed, parallel_tool_calls=False
        )
        ((name, arguments),) = called(done.choices[0].message)
        assert name == "switch" and arguments in ({"on": True}, {"on": False})
        assert done.choices[0].finish_reason == "tool_calls" and not done.choices[0].message.content


def test_calls_of_strict_tools_fit_where_they_come(client: openai.OpenAI) -> None:
    strict: Any = [TOOLS[0], SWITCH | {"function": SWITCH["function"] | {"strict": True}}]
    text = '<tool_call>\n{"name": "switch", "arguments": {"on": "maybe"}}\n</tool_call>'
    free, fits = (answer(client, text, stream=False, tools=tools) for tools in ([TOOLS[0], SWITCH], strict))
    assert called(free.choices[0].message) == [("switch", {"on": "maybe"})]
    ((name, arguments), *_) = called(fits.choices[0].message)
    assert name == "switch" and arguments in ({"on": True}, {"on": False})
    assert answer(client, "No call.", stream=False, tools=strict).choices[0].message.content == "No call."


COUNTED: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "counted",
        "schema": {"type": "object", "properties": {"count": {"type": "integer", "maximum": 99, "minimum": 0}}}
        | {"required": ["count"], "additionalProperties": False},
    },
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", [LOOK, '{"count": 7}', "No!"])
def test_beside_tools_a_text_is_calls_or_a_document(client: openai.OpenAI, text: str, stream: bool) -> None:
    choice = answer(client, text, stream=stream, response_format=COUNTED, parallel_tool_calls=False).choices[0]
    calls = called(choice.message)
    if text == LOOK:
        assert calls == [("look", {"town": "Köln"})]
    if not calls:
        assert choice.finish_reason == "stop" and choice.message.content
        assert text == "No!" or choice.message.content == text
        assert 0 <= json.loads(choice.message.content)["count"] <= 99
    else:
        assert text != '{"count": 7}' and choice.finish_reason == "tool_calls" and not choice.message.content


def test_a_call_that_must_come_is_no_document(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"response_format": COUNTED, "tool_choice": "required", "parallel_tool_calls": False}
    assert len(called(answer(client, '{"count": 7}', stream=False, **given).choices[0].message)) == 1
    none = answer(client, LOOK, stream=False, response_format=COUNTED, tool_choice="none").choices[0].message
    assert none.content and [*json.loads(none.content)] == ["count"]


def test_thoughts_come_before_a_document_beside_tools(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"response_format": COUNTED, "extra_body": {"chat_template_kwargs": {"think": True}}}
    said: Any = answer(client, 'Hm.\n</think>\n\n{"count": 7}', stream=False, **given).choices[0].message
    assert said.content == '{"count": 7}' and said.reasoning_content.strip() == "Hm."


@pytest.mark.parametrize(
    ("given", "parameter", "why"),
    [
        ({"regex": "a+"}, "regex", "no other grammar than that of JSON"),
        (
            {"json_schema": {"properties": {"a": {"uniqueItems": True}}}},
            "json_schema",
            "json_schema#/properties/a/uniqueItems: ",
        ),
        ({"json_schema": {"description": "a" * 40_000}}, "tools", "and the JSON Schema of the text has 4"),
    ],
)
def test_what_cannot_be_kept_to_beside_tools(client: openai.OpenAI, given: Any, parameter: str, why: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        answer(client, "x", stream=False, extra_body=given)
    assert refused.value.param == parameter and why in refused.value.message


@pytest.mark.parametrize("style", [Style.HERMES, Style.QWEN_XML, Style.PYTHONIC, Style.GEMMA])
def test_parameters_that_are_no_schema(style: Style) -> None:
    wrong: list[Any] = [{"properties": [1]}, {"properties": {"a": {}}, "required": 5}]
    with parrots("target", style=style) as url, client_of(url) as client:
        for parameters in wrong:
            given: Any = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            with pytest.raises(openai.BadRequestError) as refused:
                answer(client, "x", stream=False, tools=[given], tool_choice="required")
            assert refused.value.param in ("tools", "tools.0.function.parameters")


SCHEMA = {"type": "object", "properties": {"a": {"items": {"type": "integer", "not": {"const": 1}}}}}


@pytest.mark.parametrize(
    ("path", "tool", "forced", "name"),
    [
        ("/v1/chat/completions", {"function": {"name": "f", "parameters": SCHEMA}}, "required", "function.parameters"),
        ("/v1/responses", {"name": "f", "parameters": SCHEMA}, "required", "parameters"),
        ("/v1/messages", {"name": "f", "input_schema": SCHEMA}, {"type": "any"}, "input_schema"),
    ],
)
def test_a_keyword_of_a_tool_that_cannot_be_kept_to_is_named(path: str, tool: Any, forced: Any, name: str) -> None:
    """A tool that may be called in any way is only shown to the model."""
    kind = {} if "input_schema" in tool else {"type": "function"}
    plain = json.loads(json.dumps(tool).replace('"f"', '"g"').replace('{"const": 1}', "false"))
    asks: Any = {"input": "Hi"} if "responses" in path else {"messages": [{"role": "user", "content": "Hi"}]}
    body = asks | {"tools": [kind | plain, kind | tool]} | ({} if "responses" in path else {"max_tokens": 9})
    with parrots("target") as url:
        assert httpx.post(url + path, json=body).status_code == 200
        refused = httpx.post(url + path, json=body | {"tool_choice": forced})
    assert refused.status_code == 400
    wanted = f'tools.1.{name}#/properties/a/items/not: "not" cannot be kept to while a text is written'
    assert refused.json()["error"]["message"].startswith(wanted)
