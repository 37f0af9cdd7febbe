"""Histories as clients send them: what of them stands in the prompt, by chats, Responses and Messages."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from specpair.engines.backend import Logits
from tests.gateway.openai_api.parrot import Parrot, parrot_alone

ARGUMENTS = "{{ call.function.arguments | tojson }}"
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</>{% endif %}"
    "{% for m in messages %}<{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}>{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<call {{ call.function.name }}>" + ARGUMENTS + "{% endfor %}</>{% endfor %}"
    "<assistant>"
)
DEMANDS_NAMES = TEMPLATE.replace(
    "<{{ m.role }}", "{% if m.role == 'tool' and not m.name %}{{ raise_exception('no name') }}{% endif %}<{{ m.role }}"
)
SHOWS_IDS = TEMPLATE.replace("<call ", "<call {{ call.id }} ").replace(
    "<{{ m.role }}", "<{{ m.tool_call_id or m.role }}"
)
DEMANDS_IDS = SHOWS_IDS.replace(
    "<call ", "{% if call.id | length != 9 %}{{ raise_exception('Call IDs need length 9') }}{% endif %}<call "
).replace("<{{ m.tool", "{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ 1 / 0 }}{% endif %}<{{ m.tool")
ITEMS = TEMPLATE.replace(
    ARGUMENTS, "{% for key, value in call.function.arguments | items %}{{ key }}={{ value }};{% endfor %}"
)
AS_TEXT = TEMPLATE.replace(ARGUMENTS, "{{ call.function.arguments }}")
JSON_OR_TEXT = TEMPLATE.replace(
    ARGUMENTS,
    "{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}" + ARGUMENTS + "{% endif %}",
)


class Listener(Parrot):
    """Keeps the last prompt, with what it has answered, `says`."""

    heard, says = "", b""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        self.heard = bytes(token for token in tokens if token < 256).decode(errors="replace")
        return super().logits_after(tokens)

    def wanted(self, prompt: bytes) -> bytes:
        return self.says


class Served:
    """A service whose prompts can be read."""

    def __init__(self, url: str, listener: Listener) -> None:
        self._url, self.listener = url, listener

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self._url}{path}", json=body, trust_env=False)

    def prompt(self, path: str, **body: Any) -> str:
        """The prompt of a request, without the beginning of the answer."""
        limit = "max_output_tokens" if "input" in body else "max_tokens"
        reply = self.post(path, **{limit: 1} | body)
        assert reply.status_code == 200, reply.text
        return self.listener.heard.removesuffix("<assistant>")

    def chat(self, *messages: Any, **body: Any) -> str:
        return self.prompt("/v1/chat/completions", messages=[*messages], **body)

    def responses(self, *items: Any, **body: Any) -> str:
        return self.prompt("/v1/responses", input=[*items], **body)

    def messages(self, *messages: Any, **body: Any) -> str:
        return self.prompt("/v1/messages", messages=[*messages], **body)


@contextmanager
def listening(template: str = TEMPLATE) -> Iterator[Served]:
    listener = Listener(template)
    with parrot_alone(listener) as url:
        yield Served(url, listener)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with listening() as found:
        yield found


USER = {"role": "user", "content": "Hi"}


def call(arguments: Any, id: str = "c1", name: str = "look") -> dict[str, Any]:
    called = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def result(text: str = "rain", id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text} | more


@pytest.mark.parametrize("template", [TEMPLATE, DEMANDS_NAMES])
def test_the_answer_of_a_tool_has_the_name_of_its_call_in_each_api(template: str) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}
    answered = {"type": "tool_result", "tool_use_id": "c1", "content": "rain"}
    with listening(template) as served:
        prompts = {
            served.chat(USER, call('{"a": 1}'), result()),
            served.responses(
                USER,
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            ),
            served.messages(USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [answered]}),
        }
    assert prompts == {'<user>Hi</><assistant><call look>{"a": 1}</><tool look>rain</>'}


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ([result(name="other")], "<tool other>rain</>"),
        ([result(id="c9")], "<tool>rain</>"),
        ([result("2", "c2"), result("1", "c1")], "<tool walk>2</><tool look>1</>"),
    ],
)
def test_names_of_answers(served: Served, answers: list[Any], shown: str) -> None:
    calls = call("{}") | {"tool_calls": [*call("{}")["tool_calls"], *call("{}", "c2", "walk")["tool_calls"]]}
    assert served.chat(USER, calls, *answers).endswith(shown)


def test_a_later_call_with_the_same_id_names_its_answer(served: Served) -> None:
    prompt = served.chat(USER, call("{}"), result("1"), call("{}", name="walk"), result("2"))
    assert prompt.endswith("<tool look>1</><assistant><call walk>{}</><tool walk>2</>")


def test_an_answer_of_a_tool_is_named_by_a_call_in_the_previous_response() -> None:
    tool = {"type": "function", "name": "look"}
    with listening() as served:
        served.listener.says = b'{"name": "look", "arguments": {}}'
        first = served.post("/v1/responses", input="Hi", tools=[tool]).json()
        served.listener.says = b""
        given = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "rain"}
        assert served.responses(given, previous_response_id=first["id"], tools=[tool]).endswith("<tool look>rain</>")


@pytest.mark.parametrize("id", ["call_hUZgQQ3VKVh4", "a", "toolu_01", "nine char"])
def test_ids_of_calls_are_those_that_a_template_demands(id: str) -> None:
    said = [USER, call("{}", id), result(id=id), call("{}", "abc123XYZ"), result(id="abc123XYZ")]
    with listening(DEMANDS_IDS) as served:
        prompt = served.chat(*said)
        first, second, third, fourth = re.findall(r"<(?:call )?([A-Za-z0-9]{9}) look>", prompt)
        assert first == second != third == fourth == "abc123XYZ"
        assert served.chat(*said) == prompt, "prompts of later turns begin the same"
    with listening(SHOWS_IDS) as served:
        assert served.chat(*said).count(f"<{id} ") == 1 and f"<call {id} " in served.chat(*said), "others see the ids"


# The arguments as they were given, and as templates of these kinds show them.
ODD = [
    ('{"a": 1}', "a=1;", '{"a": 1}', '{"a": 1}'),
    ('{"a": "x", "b": "cu', "a=x;b=cu;", '{"a": "x", "b": "cu', '{"a": "x", "b": "cu'),
    ('{"a": 1, "b": tru', "a=1;", '{"a": 1, "b": tru', '{"a": 1, "b": tru'),
    ("", "", "{}", "{}"),
    (None, "", "{}", "{}"),
    ("null", "", "null", "{}"),
    ("[1]", "", "[1]", "[1]"),
    ([1], "", "[1]", "[1]"),
    ('"text"', "", '"text"', '"text"'),
    ("not json", "", "not json", "not json"),
    ("[" * 3000, "", "[" * 3000, "[" * 3000),
    ({"a": 1}, "a=1;", '{"a": 1}', '{"a": 1}'),
]


@pytest.mark.parametrize(("template", "which"), [(ITEMS, 1), (AS_TEXT, 2), (JSON_OR_TEXT, 3)])
def test_arguments_that_are_no_object_stay_as_far_as_the_template_shows_them(template: str, which: int) -> None:
    with listening(template) as served:
        for row in ODD:
            prompt = served.chat(USER, call(row[0]), result())
            assert prompt == f"<user>Hi</><assistant><call look>{row[which]}</><tool look>rain</>", row[0]
            item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": row[0]}
            output = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
            assert served.responses(USER, item, output) == prompt
            use = {"type": "tool_use", "id": "c1", "name": "look", "input": row[0]}
            answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]}
            assert served.messages(USER, {"role": "assistant", "content": [use]}, answer) == prompt
