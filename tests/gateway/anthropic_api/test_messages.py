"""Messages with Anthropic's own client and types, whole and streamed, at both ends; with calls and thoughts."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import anthropic
import httpx
import pytest

from tests.gateway.openai_api.conftest import endpoints, verifier
from tests.gateway.openai_api.parrot import LOOK, TEMPLATE, parrots


@pytest.fixture(scope="module", params=["target", "drafter"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a service with Anthropic's endpoints."""
    with endpoints(request.param) as (found, _):
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


OPTIONS: dict[str, Any] = {"model": "scripted-2", "max_tokens": 12, "extra_body": {"seed": 3}}
HELLO: Any = [{"role": "user", "content": "Hello"}]
NOW = {"name": "now", "input_schema": {"type": "object"}}
FORMAT: Any = {"type": "json_schema", "schema": {"type": "object"}}


def begun(content: Any) -> dict[str, Any]:
    """The beginning of an answer."""
    return {"role": "assistant", "content": content}


def _of_chat(url: str, messages: list[Any], **options: Any) -> str:
    """The text of the same chat."""
    body = {"messages": messages, "max_tokens": 12, "seed": 3} | options
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False)
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


def _message(client: anthropic.Anthropic, stream: bool = False, **asked: Any) -> anthropic.types.Message:
    given = {"messages": HELLO} | OPTIONS | asked
    if not stream:
        return client.messages.create(**given)
    with client.messages.stream(**given) as streamed:
        message = streamed.get_final_message()
    return message


def _text(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_is_the_answer_of_the_chat(client: anthropic.Anthropic, url: str, stream: bool) -> None:
    message = _message(client, stream, system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}])
    chat = [{"role": "system", "content": "Be\n\nbrief"}, {"role": "user", "content": "Hello"}]
    assert _text(message) == _of_chat(url, chat)
    assert (message.stop_reason, message.stop_sequence, message.role) == ("max_tokens", None, "assistant")
    prompt = len("<system>Be\n\nbrief</><user>Hello</><assistant>") + 1
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == prompt and usage.output_tokens == 12
    type(message).model_validate(message.to_dict())


def test_a_text_block_has_no_citations_since_some_clients_refuse_null(url: str) -> None:
    body = {"messages": HELLO, "max_tokens": 12}
    reply = httpx.post(f"{url}/v1/messages", json=body, trust_env=False).json()
    assert [set(block) for block in reply["content"]] == [{"type", "text"}]
    text = httpx.post(f"{url}/v1/messages", json=body | {"stream": True}, trust_env=False).text
    assert '"content_block":{"type":"text","text":""}' in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_named(client: anthropic.Anthropic, stream: bool) -> None:
    whole = _text(_message(client))
    message = _message(client, stream, stop_sequences=["never", whole[4:6]])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", whole[4:6])
    assert _text(message) == whole[: whole.index(whole[4:6])]


def test_a_full_context_is_told(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "x" * 470}]
    message = _message(client, messages=messages, max_tokens=400, extra_body={"ignore_eos": None, "min_tokens": 300})
    assert message.stop_reason == "model_context_window_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_begun_goes_on(client: anthropic.Anthropic, stream: bool) -> None:
    greedy: Any = {"extra_body": {"temperature": 0}}
    whole = _text(_message(client, **greedy))
    said: Any = [*HELLO, begun([{"type": "text", "text": whole[:5]}])]
    message = _message(client, stream, messages=said, max_tokens=7, **greedy)
    assert whole == whole[:5] + _text(message)
    counted = [client.messages.count_tokens(model="", messages=each).input_tokens for each in (HELLO, said)]
    assert counted[1] == counted[0] + 5 == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def test_models_are_listed_for_both_clients(client: anthropic.Anthropic, url: str) -> None:
    (model,) = client.models.list()
    assert model.id == model.display_name and model.type == "model" and model.created_at.year >= 2026
    assert client.models.retrieve(model.id).to_dict() == model.to_dict()
    type(model).model_validate(model.to_dict())
    plain = httpx.get(f"{url}/v1/models", trust_env=False).json()
    assert plain.keys() == {"object", "data"} and "type" not in plain["data"][0]


def test_tokens_are_counted_as_a_message_counts_them(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="scripted-2", messages=HELLO, system="S")
    usage = _message(client, system="S").usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    long: Any = [{"role": "user", "content": "x" * 600}]
    assert client.messages.count_tokens(model="", messages=long).input_tokens > 600


def test_a_text_keeps_to_a_schema(client: anthropic.Anthropic) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    message = _message(client, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=40)
    assert json.loads(_text(message))["a"] in (1, 2) and message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [*HELLO, begun([{"type": "thinking", "thinking": "x"}])]}, "messages.1"),
        ({"messages": [*HELLO, begun("{")], "output_config": {"format": FORMAT}}, "messages.1"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"system": 1}, "system"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": -2}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ({"output_config": {"format": FORMAT | {"schema": {"type": "no"}}}}, "output_config.format.schema"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"tools": [{"type": "bash_20250124", "name": "bash", "input_schema": {}}]}, "tools.0.type"),
        ({"tools": [{"name": "no name", "input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "x", "input_schema": 1}]}, "tools.0.input_schema"),
        ({"tools": [NOW], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"stop_sequences": [1]}, "stop_sequences.0"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_wrong_is_named_in_anthropic_s_shape(
    client: anthropic.Anthropic, given: dict[str, Any], parameter: str
) -> None:
    asked = {"model": "", "messages": HELLO, "max_tokens": 4} | given
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.post("/v1/messages", body=asked, cast_to=object)
    body: Any = caught.value.body
    assert body["type"] == "error" and body["request_id"]
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", parameter)
    assert parameter in body["error"]["message"]


def test_another_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        _message(client, model="claude-opus-5")
    assert caught.value.type == "not_found_error"


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": "Works", "input_schema": schema | {"required": [*properties]}}


TOOLS: list[Any] = [_tool("look", town="string"), _tool("add", a="integer", b="integer")]


@pytest.fixture(scope="module", params=["target", "drafter"])
def parrot(request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    with parrots(request.param) as url, anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as parrot:
        yield parrot


def _answer(parrot: anthropic.Anthropic, messages: Any, *, stream: bool = False, **options: Any) -> Any:
    """The answer, put together by the client if it is streamed. `messages`: or what the user says."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    asked: dict[str, Any] = {"model": "", "max_tokens": 200, "extra_body": {"seed": 1}}
    given: dict[str, Any] = asked | {"messages": said, "tools": TOOLS} | options
    if not stream:
        return parrot.messages.create(**given)
    with parrot.messages.stream(**given) as streamed:
        return streamed.get_final_message()


def _called(message: Any) -> list[tuple[str, Any]]:
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_a_block_before_the_text(parrot: anthropic.Anthropic, stream: bool) -> None:
    thinking = {"thinking": {"type": "adaptive"}}
    message = _answer(parrot, f"<think>\nWhy?\n</think>\n\nWell.\n{LOOK}", stream=stream, **thinking)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[0].thinking.strip() == "Why?" and message.content[1].text.strip() == "Well."


SWITCHES = [  # how a template has thoughts begun, and whether it knows a budget
    ("{% if enable_thinking %}<think>{% else %}</think>{% endif %}", ["</think>", "<think>", "<think>"]),
    ("{% if thinking_budget %}budget {{ thinking_budget }}{% endif %}", ["", "", "budget 1024"]),
]


@pytest.mark.parametrize(("end", "begun"), SWITCHES)
def test_a_template_gets_the_switch_and_the_budget_of_thoughts(end: str, begun: list[str]) -> None:
    template = TEMPLATE.replace(
        "{% if add_generation_prompt %}<assistant>", "{% if add_generation_prompt %}" + end + "<assistant>"
    )
    with parrots("target", template) as url, anthropic.Anthropic(base_url=url, api_key="none") as parrot:
        given: list[Any] = [{"type": "disabled"}, {"type": "enabled"}, {"type": "enabled", "budget_tokens": 1024}]
        messages: Any = [{"role": "user", "content": "Hi"}]
        least = min(
            parrot.messages.count_tokens(model="", messages=messages, thinking=each).input_tokens for each in given
        )
        for thinking, shown in zip(given, begun, strict=True):
            counted = parrot.messages.count_tokens(model="", messages=messages, thinking=thinking).input_tokens
            assert counted - least == len(shown) - min(map(len, begun))
            message = _answer(parrot, "Hi", tools=[], thinking=thinking, max_tokens=2)
            assert counted == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_thoughts_that_the_template_begins_are_not_continued(parrot: anthropic.Anthropic) -> None:
    template = TEMPLATE.replace("{% if think %}", "{% if enable_thinking %}")
    messages: Any = [{"role": "user", "content": "Well, yes."}, {"role": "assistant", "content": "Well"}]
    with parrots("target", template) as url, anthropic.Anthropic(base_url=url, api_key="none") as parrot:
        with pytest.raises(anthropic.BadRequestError, match="begins thoughts there"):
            _answer(parrot, messages, thinking={"type": "enabled", "budget_tokens": 1024}, tools=[])
        for stream in (False, True):
            message = _answer(parrot, messages, thinking={"type": "disabled"}, stream=stream)
            assert [block.text for block in message.content] == [", yes."]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_call_that_must_come_is_valid(parrot: anthropic.Anthropic, choice: Any) -> None:
    message = _answer(parrot, "No!", tool_choice=choice | {"disable_parallel_tool_use": True})
    ((name, arguments),) = _called(message)
    assert message.stop_reason == "tool_use" and isinstance(arguments, dict)
    assert name == "add" or choice["type"] == "any"


def test_tools_count_as_tokens(parrot: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    bare, with_tools = (parrot.messages.count_tokens(model="", messages=messages, tools=tools) for tools in ([], TOOLS))
    usage = _answer(parrot, "Hi").usage
    assert bare.input_tokens < with_tools.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_the_key_is_taken_from_x_api_key() -> None:
    with verifier(api_key="s3cret") as live:
        url, body = f"{live.url}/v1/messages", {"max_tokens": 2, "messages": HELLO}
        for headers in ({"x-api-key": "s3cret"}, {"Authorization": "Bearer s3cret"}):
            assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 200
        wrong = {"x-api-key": "s3cret", "Authorization": "Bearer other"}  # one key is meant, the usual one
        for refused in ({}, {"x-api-key": "other"}, wrong):
            reply = httpx.post(url, json=body, headers=refused, trust_env=False)
            error = reply.json()
            assert (reply.status_code, error["type"]) == (401, "error")
            assert error["error"]["type"] == "authentication_error"
        for key in ("s3cret", "other"):
            refusal = pytest.raises(anthropic.AuthenticationError) if key == "other" else nullcontext()
            with refusal, anthropic.Anthropic(base_url=live.url, api_key=key, max_retries=0) as client:
                assert client.messages.count_tokens(model="", messages=HELLO).input_tokens
