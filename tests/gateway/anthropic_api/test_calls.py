"""Calls of tools and thoughts in messages, with Anthropic's own client and types, whole and streamed, at both ends."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.gateway.openai_api.parrot import LOOK, TEMPLATE, parrots


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": "Works", "input_schema": schema | {"required": [*properties]}}


TOOLS: list[Any] = [_tool("look", town="string"), _tool("add", a="integer", b="integer")]


@pytest.fixture(scope="module", params=["target", "drafter"])
def client(request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    with parrots(request.param) as url, anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def _message(client: anthropic.Anthropic, messages: Any, *, stream: bool = False, **options: Any) -> Any:
    """The answer, put together by the client if it is streamed. `messages`: or what the user says."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    given: dict[str, Any] = {
        "model": "",
        "max_tokens": 200,
        "messages": said,
        "tools": TOOLS,
        "extra_body": {"seed": 1},
    } | options
    if not stream:
        return client.messages.create(**given)
    with client.messages.stream(**given) as streamed:
        return streamed.get_final_message()


def _called(message: Any) -> list[tuple[str, Any]]:
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_a_block_before_the_text(client: anthropic.Anthropic, stream: bool) -> None:
    thinking = {"thinking": {"type": "adaptive"}}
    message = _message(client, f"<think>\nWhy?\n</think>\n\nWell.\n{LOOK}", stream=stream, **thinking)
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
    with parrots("target", template) as url, anthropic.Anthropic(base_url=url, api_key="none") as client:
        given: list[Any] = [{"type": "disabled"}, {"type": "enabled"}, {"type": "enabled", "budget_tokens": 1024}]
        messages: Any = [{"role": "user", "content": "Hi"}]
        least = min(
            client.messages.count_tokens(model="", messages=messages, thinking=each).input_tokens for each in given
        )
        for thinking, shown in zip(given, begun, strict=True):
            counted = client.messages.count_tokens(model="", messages=messages, thinking=thinking).input_tokens
            assert counted - least == len(shown) - min(map(len, begun))
            message = _message(client, "Hi", tools=[], thinking=thinking, max_tokens=2)
            assert counted == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_thoughts_that_the_template_begins_are_not_continued(client: anthropic.Anthropic) -> None:
    template = TEMPLATE.replace("{% if think %}", "{% if enable_thinking %}")
    messages: Any = [{"role": "user", "content": "Well, yes."}, {"role": "assistant", "content": "Well"}]
    with parrots("target", template) as url, anthropic.Anthropic(base_url=url, api_key="none") as client:
        with pytest.raises(anthropic.BadRequestError, match="begins thoughts there"):
            _message(client, messages, thinking={"type": "enabled", "budget_tokens": 1024}, tools=[])
        for stream in (False, True):
            message = _message(client, messages, thinking={"type": "disabled"}, stream=stream)
            assert [block.text for block in message.content] == [", yes."]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_call_that_must_come_is_valid(client: anthropic.Anthropic, choice: Any) -> None:
    message = _message(client, "No!", tool_choice=choice | {"disable_parallel_tool_use": True})
    ((name, arguments),) = _called(message)
    assert message.stop_reason == "tool_use" and isinstance(arguments, dict)
    assert name == "add" or choice["type"] == "any"


def test_tools_count_as_tokens(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    bare, with_tools = (client.messages.count_tokens(model="", messages=messages, tools=tools) for tools in ([], TOOLS))
    usage = _message(client, "Hi").usage
    assert bare.input_tokens < with_tools.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"tools": [{"name": "no name", "input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "x"}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
    ],
)
def test_what_is_wrong_is_named(client: anthropic.Anthropic, given: Any, parameter: str) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        _message(client, "x", **given)
    body: Any = refused.value.body
    assert body["error"]["param"] == parameter
