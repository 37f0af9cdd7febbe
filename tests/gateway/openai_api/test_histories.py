"""Histories as clients send them: what of them stands in the prompt, by chats, Responses and Messages."""

import json
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
        self.ignored: str | None = None  # hints that the last reply has named

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self._url}{path}", json=body, trust_env=False)

    def prompt(self, path: str, **body: Any) -> str:
        """The prompt of a request, without the beginning of the answer."""
        limit = "max_output_tokens" if "input" in body else "max_tokens"
        reply = self.post(path, **{limit: 1} | body)
        assert reply.status_code == 200, reply.text
        self.ignored = reply.headers.get("x-specpair-ignored")
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


CALLS = [*call("{}")["tool_calls"], *call("{}", "c2", "walk")["tool_calls"]]


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
    assert served.chat(USER, call("{}") | {"tool_calls": CALLS}, *answers).endswith(shown)


def test_a_later_call_with_the_same_id_names_its_answer(served: Served) -> None:
    developer = {"role": "developer", "content": "D"}
    prompt = served.chat(developer, USER, call("{}"), result("1"), call("{}", name="walk"), result("2"))
    assert prompt.startswith("<system>D</><user>Hi</>")
    assert prompt.endswith("<tool look>1</><assistant><call walk>{}</><tool walk>2</>")


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
            lost = template == ITEMS and row[0] not in ('{"a": 1}', "", None, "null", {"a": 1})
            assert served.ignored == ("messages.tool_calls.function.arguments" if lost else None), row[0]
            item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": row[0]}
            output = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
            assert served.responses(USER, item, output) == prompt
            use = {"type": "tool_use", "id": "c1", "name": "look", "input": row[0]}
            answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]}
            assert served.messages(USER, {"role": "assistant", "content": [use]}, answer) == prompt


LOOKED = "<user>Hi</><assistant><call {}>{}</><tool {}>{}</>"
MCP = {"type": "mcp_call", "id": "m1", "server_label": "s", "name": "look", "arguments": "{}"}
LOGS = [{"type": "logs", "logs": "1"}, {"type": "logs", "logs": "2"}]
# Items of Responses, and the call and the answer that the model sees.
ITEMS_SHOWN: list[tuple[list[Any], tuple[str, str, str]]] = [
    (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'say "ä"\n', "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]},
        ],
        ("patch", '{"input": "say \\"ä\\"\\n"}', "ok"),
    ),
    (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "namespace": "git", "input": ""},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        ],
        ("git.patch", '{"input": ""}', "ok"),
    ),
    ([MCP | {"arguments": '{"a": 1}', "output": "12"}], ("look", '{"a": 1}', "12")),
    ([MCP | {"output": None, "error": {"message": "x"}}], ("look", "{}", '{"message": "x"}')),
    (
        [{"type": "code_interpreter_call", "id": "m1", "code": "1+1", "container_id": "c", "outputs": LOGS}],
        ("code_interpreter", '{"code": "1+1"}', "1\n2"),
    ),
    (
        [{"type": "file_search_call", "id": "m1", "queries": ["q"], "results": [{"filename": "f", "text": "t"}]}],
        ("file_search", '{"queries": ["q"]}', '[{"filename": "f", "text": "t"}]'),
    ),
    (
        [
            {"type": "local_shell_call", "id": "m", "call_id": "m1", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "m1", "output": "a.txt"},
        ],
        ("local_shell", '{"type": "exec", "command": ["ls"]}', "a.txt"),
    ),
    (
        [
            {"type": "shell_call", "call_id": "m1", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "m1", "output": [{"stdout": "a", "stderr": ""}]},
        ],
        ("shell", '{"commands": ["ls"]}', '[{"stdout": "a", "stderr": ""}]'),
    ),
    (
        [
            {"type": "apply_patch_call", "call_id": "m1", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "call_id": "m1", "status": "completed"},
        ],
        ("apply_patch", '{"type": "delete_file", "path": "a"}', "completed"),
    ),
]


@pytest.mark.parametrize(("items", "shown"), ITEMS_SHOWN, ids=lambda each: str(each)[:40])
def test_the_model_sees_calls_of_a_providers_tools(
    served: Served, items: list[Any], shown: tuple[str, str, str]
) -> None:
    name, arguments, answer = shown
    prompt = served.responses(USER, *items)
    assert prompt == LOOKED.format(name, arguments, name, answer)
    assert served.chat(USER, call(arguments, name=name), result(answer)) == prompt


EMPTY_ITEMS: list[Any] = [
    {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "m1", "queries": ["q"], "results": None},
    {"type": "code_interpreter_call", "id": "m1", "code": "1+1", "outputs": None},
    {"type": "mcp_list_tools", "id": "m1", "server_label": "s", "tools": [{"name": "x", "input_schema": {}}]},
    {"type": "mcp_approval_request", "id": "m1", "name": "x", "arguments": "{}", "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True},
    {"type": "image_generation_call", "id": "m1", "status": "failed", "result": None},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
]


@pytest.mark.parametrize("item", EMPTY_ITEMS, ids=lambda item: str(item["type"]))
def test_items_that_hold_nothing_for_the_model_are_left_out(served: Served, item: Any) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    parts = {"role": "user", "content": [{"type": "input_text", "text": each} for each in "Hi"]}
    assert served.responses(parts, item, said, USER) == "<user>Hi</><assistant>A</><user>Hi</>"
    assert served.ignored == (None if item["type"] == "reasoning" else f"input.{item['type']}")


ANSWER = {"type": "tool_result", "tool_use_id": "c"}
IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBO"}


@pytest.mark.parametrize(
    ("item", "parameter"),
    [
        ({"type": "image_generation_call", "id": "m1", "result": "iVBO"}, "input.0"),
        ({"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "image", "url": "u"}]}, "input.0"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}, "input.0"),
        ({"type": "custom_tool_call_output", "output": [{"type": "input_image"}]}, "input.0.output.0.type"),
        ({"type": "compaction", "encrypted_content": "x"}, "input.0"),
        ({"type": "item_reference"}, "input.0.id"),
        ({"type": "custom_tool_call", "call_id": "c1", "name": "x"}, "input.0.input"),
    ],
)
def test_what_the_model_cannot_read_is_refused_by_name(served: Served, item: Any, parameter: str) -> None:
    reply = served.post("/v1/responses", input=[item])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, parameter), reply.text
    assert parameter in reply.json()["error"]["message"]


def test_the_model_sees_the_text_of_a_custom_tool_in_a_chat(served: Served) -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "x"}}
    prompt = served.chat(USER, {"role": "assistant", "content": None, "tool_calls": [custom]}, result("ok"))
    assert prompt == LOOKED.format("patch", '{"input": "x"}', "patch", "ok")


def test_references_stand_for_items_of_kept_responses(served: Served) -> None:
    tools = [{"type": "function", "name": "look"}, {"type": "custom", "name": "patch"}]
    calls = [{"name": "look", "arguments": {}}, {"name": "patch", "arguments": {"input": "x"}}]
    written = "".join(f"\n<tool_call>{json.dumps(each)}</tool_call>" for each in calls)
    served.listener.says = f"<think>Hm</think>I look.{written}".encode()
    kept = served.post("/v1/responses", input="Hi", tools=tools).json()
    served.listener.says = b""
    assert [item["type"] for item in kept["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    *_, looked, patched = kept["output"]
    answers = [
        {"type": "function_call_output", "call_id": looked["call_id"], "output": "rain"},
        {"type": "custom_tool_call_output", "call_id": patched["call_id"], "output": "done"},
    ]
    references = [{"type": "item_reference", "id": item["id"]} for item in kept["output"]]
    sent = served.responses(USER, *kept["output"], *answers, tools=tools)
    assert sent.endswith('<call patch>{"input": "x"}</><tool look>rain</><tool patch>done</>')
    assert served.responses(USER, *references, *answers, tools=tools) == sent
    assert served.responses(USER, *({"id": item["id"]} for item in kept["output"]), *answers, tools=tools) == sent
    assert served.responses(*answers, previous_response_id=kept["id"], tools=tools) == sent


@pytest.mark.parametrize("id", ["msg_1", "fc_" + "0" * 34])
def test_a_reference_to_nothing_is_an_error_that_names_it(served: Served, id: str) -> None:
    reply = served.post("/v1/responses", input=[USER, {"type": "item_reference", "id": id}])
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "response_not_found")
    assert reply.json()["error"]["param"] == "input.1.id" and id in reply.json()["error"]["message"]


USE = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
TWELVE = {"type": "text", "text": "12"}
RESULT = {"type": "search_result", "source": "u", "title": "t"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}
LOOK = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
LOOKS = "<assistant>A<call look>{}</>"
FOUND = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "x", "page_age": None}


@pytest.mark.parametrize(
    ("blocks", "shown"),
    [
        (
            [
                {"type": "text", "text": "I search."},
                USE,
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [FOUND]},
                {"type": "text", "text": "Found."},
            ],
            '<assistant>I search.<call web_search>{"query": "q"}</><tool web_search>[{"type": "web_search_result", '
            '"url": "u", "title": "t", "page_age": null}]</><assistant>Found.</>',
        ),
        (
            [
                {"type": "mcp_tool_use", "id": "s1", "name": "look", "server_name": "x", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "s1", "is_error": False, "content": [TWELVE]},
            ],
            "<assistant><call look>{}</><tool look>12</>",
        ),
        ([USE], '<assistant><call web_search>{"query": "q"}</>'),
        ([{"type": "redacted_thinking", "data": "x"}], "<assistant></>"),
        ([THOUGHT, {"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, LOOK], LOOKS),
    ],
)
def test_the_model_sees_what_anthropics_tools_found(served: Served, blocks: list[Any], shown: str) -> None:
    prompt = served.messages(USER, {"role": "assistant", "content": blocks}, USER)
    assert prompt == f"<user>Hi</>{shown}<user>Hi</>"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": "It failed", "is_error": True}, "It failed"),
        ({"is_error": True}, "error"),
        ({"content": []}, ""),
        ({"content": [RESULT | {"citations": {"enabled": True}, "content": [TWELVE]}]}, "t\nu\n12"),
        ({"content": [{"type": "document", "source": {"type": "text", "data": "x"}, "title": "t"}]}, "t\nx"),
    ],
)
def test_contents_of_a_tools_answer(served: Served, answer: Any, shown: str) -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "c1"} | answer, TWELVE, TWELVE]
    prompt = served.messages(USER, {"role": "assistant", "content": [LOOK]}, {"role": "user", "content": blocks})
    assert prompt == LOOKED.format("look", "{}", "look", shown) + "<user>12\n12</>"


@pytest.mark.parametrize(
    ("block", "where"),
    [
        ({"type": "image", "source": IMAGE}, ""),
        ({"type": "document", "source": IMAGE}, ".source.type"),
        (ANSWER | {"content": [{"type": "image"}]}, ".content.0"),
        (ANSWER | {"type": "web_fetch_tool_result", "content": {"content": {"source": IMAGE}}}, ".content"),
    ],
)
def test_images_in_messages_are_refused_by_name(served: Served, block: Any, where: str) -> None:
    reply = served.post("/v1/messages", max_tokens=1, messages=[{"role": "user", "content": [block]}])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, f"messages.0.content.0{where}"), reply.text


ONE_CALL = (  # as gpt-oss's
    "{% for m in messages %}{% if m.tool_calls %}"
    "{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
    "<call {{ m.tool_calls[0].function.name }}{{ m.thinking }}>{{ m.tool_calls[0].function.arguments | tojson }}"
    "{% else %}<{{ m.role }}>{{ m.content }}</>{% endif %}{% endfor %}<assistant>"
)
IDS_FOR_NAMES = (  # as Kimi K2's
    "{% for m in messages %}<{{ m.role }}>{{ m.tool_call_id }} {{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<call {{ call.id }}>"
    "{{ call.function.arguments | tojson }}{% endfor %}</>{% endfor %}<assistant>"
)


def test_calls_that_a_template_shows_in_part_stand_in_messages_of_their_own() -> None:
    calls = {"role": "assistant", "content": "I look.", "reasoning_content": " Why?", "tool_calls": CALLS}
    with listening(ONE_CALL) as served:
        prompt = served.chat(
            USER, calls, result("2", "c2"), result("1"), {"role": "assistant", "content": "Done"}, USER
        )
    said = "<user>Hi</><assistant>I look.</>"
    assert prompt == f"{said}<call look Why?>{{}}<tool>1</><call walk>{{}}<tool>2</><assistant>Done</><user>Hi</>"


def test_ids_say_the_names_of_functions_where_a_template_shows_no_names() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": CALLS}
    with listening(IDS_FOR_NAMES) as served:
        prompt = served.chat(USER, calls, result("2", "c2"), result("1"))
    one, two = "functions.look:0", "functions.walk:1"
    shown = f"<call {one}>{{}}<call {two}>{{}}</><tool>{two} 2</><tool>{one} 1</>"
    assert prompt == f"<user> Hi</><assistant> {shown}"
