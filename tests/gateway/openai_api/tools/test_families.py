"""Replies as families of models write them: calls, thoughts and content, in pieces of every size, and calls by force.

The replies were written by hand, in the forms of the families' chat templates.
"""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.openai_api.answer import AnswerForm, markers_to_read
from gateway.openai_api.tools.styles import NOTATIONS, Style, style_of
from tests.gateway.openai_api.parrot import TEMPLATE, parrots
from tests.gateway.openai_api.tools.support import Call, Said, answered, tool

STEPS = (1, 2, 3, 5, 7, 10**6)
LOOK_UP = tool(town={"type": "string"}, days={"type": "integer"}, where={"type": "object"})
TOOLS = {"look": LOOK_UP, "now": tool() | {"additionalProperties": False}}
TOWN = 'Köln "am\n  Rhein" </arg_value> </parameter>, <｜tool▁call▁end｜> <|end|> \\ '
WHERE = '{"at": [1.5, null], "in": {"a": true}}'
ARGUMENTS = {"town": TOWN, "days": 2, "where": json.loads(WHERE)}
JSON = json.dumps(ARGUMENTS, ensure_ascii=False)
PYTHON = f"look(town={json.dumps(TOWN, ensure_ascii=False)}, days=2, where={{'at': [1.5, None], 'in': {{'a': True}}}})"


@dataclass(frozen=True)
class Family:
    """How a family writes two calls. `sign`: of its chat template."""

    style: Style
    sign: str
    look: str
    now: str
    before: str = ""
    between: str = ""
    after: str = ""
    thoughts: str = "<think>\nWhy?\n</think>\n\n"
    said: str = "I look.\n"

    def text(self, *calls: str) -> str:
        return self.before + self.between.join(calls) + self.after

    def form(self, *, whole: bool = False) -> AnswerForm:
        return AnswerForm(markers_to_read(self.sign), style=style_of(self.sign), tools=TOOLS, whole=whole)


def dsml(name: str, space: str = "") -> Family:
    d = f"｜DSML｜{space}"
    typed = (("town", "true", TOWN), ("days", "false", "2"), ("where", "false", WHERE))
    parameters = (f'<{d}parameter name="{key}" string="{text}">{value}</{d}parameter>\n' for key, text, value in typed)
    return Family(
        Style(f"deepseek-{name}"),
        f"｜DSML｜ { ({'v3.2': 'function_calls>', 'v4': 'tool_calls>', 'v4.1': '｜ calls>'}[name]) }",
        f'<{d}invoke name="look">\n{"".join(parameters)}</{d}invoke>',
        f'<{d}invoke name="now">\n\n</{d}invoke>',
        before=f"\n\n<{d}{CALLS[name]}>\n",
        between="\n",
        after=f"\n</{d}{CALLS[name]}>",
    )


CALLS = {"v3.2": "function_calls", "v4": "tool_calls", "v4.1": "calls"}
TO = "<|start|>assistant to=functions.look<|channel|>commentary <|constrain|>json<|message|>"
FAMILIES = [
    Family(
        Style.HARMONY,
        "<|start|>assistant<|channel|>analysis<|message|>",
        f"<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{JSON}",
        "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}",
        between="<|call|>",
        after="<|call|>",
        thoughts="<|channel|>analysis<|message|>Why?<|end|>",
        said="<|channel|>commentary<|message|>I look.<|end|>",
    ),
    Family(
        Style.GLM,
        "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>",
        f"<tool_call>look\n<arg_key>town</arg_key>\n<arg_value>{TOWN}</arg_value>\n<arg_key>days</arg_key>\n"
        f"<arg_value>2</arg_value>\n<arg_key>where</arg_key>\n<arg_value>{WHERE}</arg_value>\n</tool_call>",
        "<tool_call>now\n</tool_call>",
        between="\n",
    ),
    Family(
        Style.GLM_COMPACT,
        "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>",
        f"<tool_call>look<arg_key>town</arg_key><arg_value>{TOWN}</arg_value><arg_key>days</arg_key>"
        f"<arg_value>2</arg_value><arg_key>where</arg_key><arg_value>{WHERE}</arg_value></tool_call>",
        "<tool_call>now</tool_call>",
    ),
    Family(
        Style.DEEPSEEK_V3,
        "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>NAME\n```json",
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{JSON}\n```<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>",
        before="<｜tool▁calls▁begin｜>",
        between="\n",
        after="<｜tool▁calls▁end｜>",
    ),
    Family(
        Style.DEEPSEEK_V31,
        "<｜tool▁calls▁begin｜>",
        f"<｜tool▁call▁begin｜>look<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        before="<｜tool▁calls▁begin｜>",
        after="<｜tool▁calls▁end｜>",
    ),
    dsml("v3.2"),
    dsml("v4"),
    dsml("v4.1", " "),
    Family(
        Style.KIMI,
        "<|tool_calls_section_begin|>",
        f"<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{JSON}<|tool_call_end|>",
        "<|tool_call_begin|>functions.now:1 <|tool_call_argument_begin|>{}<|tool_call_end|>",
        before="<|tool_calls_section_begin|>",
        after="<|tool_calls_section_end|>",
    ),
    Family(
        Style.MINIMAX,
        "<minimax:tool_call>",
        f'<invoke name="look">\n<parameter name="town">{TOWN}</parameter>\n<parameter name="days">2</parameter>\n'
        f'<parameter name="where">{WHERE}</parameter>\n</invoke>\n',
        '<invoke name="now">\n</invoke>\n',
        before="\n<minimax:tool_call>\n",
        after="</minimax:tool_call>",
    ),
    Family(
        Style.SEED,
        "<seed:tool_call> <seed:think>",
        f"<seed:tool_call>\n<function=look>\n<parameter=town>{TOWN}</parameter>\n<parameter=days>2</parameter>\n"
        f"<parameter=where>{WHERE}</parameter>\n</function>\n</seed:tool_call>",
        "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
        between="\n",
        thoughts="<seed:think>Why?</seed:think>\n",
    ),
    Family(
        Style.OLMO,
        "<function_calls>",
        PYTHON,
        "now()",
        before="<function_calls>\n",
        between="\n",
        after="\n</function_calls>",
    ),
]
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.style)


def read(family: Family, text: str, *, whole: bool = False) -> Said:
    """What a text says, the same in pieces of every size."""
    first, *others = (answered(family.form(whole=whole), text, step) for step in STEPS)
    assert all(other == first for other in others)
    return first


def called(said: Said) -> list[tuple[str, Any]]:
    assert all(call.whole for call in said.calls)
    return [(call.name, json.loads(call.arguments)) for call in said.calls]


LOOK, NOW = ("look", ARGUMENTS), ("now", dict[str, Any]())


@EACH
@pytest.mark.parametrize("whole", [False, True])
def test_calls_and_what_stands_before_them(family: Family, whole: bool) -> None:
    assert style_of(family.sign) is family.style
    for names in (["look"], ["now"], ["look", "now"], ["now", "look", "look"]):
        text = family.text(*(getattr(family, name) for name in names))
        wanted = [LOOK if name == "look" else NOW for name in names]
        for thoughts in ("", family.thoughts):
            for content in ("", family.said):
                said = read(family, thoughts + content + text, whole=whole)
                assert called(said) == wanted
                assert (said.content, said.thoughts) == (content and "I look.", thoughts and "Why?")


@EACH
def test_calls_that_are_cut_or_break_off_are_no_calls(family: Family) -> None:
    markers = NOTATIONS[family.style].writing().tokens
    text = family.text(family.look)
    begin = text.index("look")
    for end in (begin + 2, begin + 6, begin + 40, len(text) - len(family.after) - 50):
        said = read(family, family.said + text[:end], whole=True)
        assert said.calls == [] and said.content.startswith("I look.")
        grown = read(family, family.said + text[:end])
        assert [call.whole for call in grown.calls] in ([], [False])
        if family.style is Style.HARMONY:
            assert not any(marker in said.content + grown.content for marker in markers if marker != "<|end|>")
    unknown = read(family, family.text(family.now.replace("now", "then")))
    assert unknown.calls == [] and ("then" in unknown.content or family.style is Style.HARMONY)
    after = read(family, family.text(family.look.replace("look", "then"), family.now))
    assert called(after)[-1:] == [NOW] or family.style is Style.OLMO  # its marker stands before the first call alone


@pytest.mark.parametrize(
    ("text", "thoughts", "content", "calls"),
    [
        ("<|channel|>final<|message|>So.<|return|>", "", "So.", 0),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>",
            "a\n\nb",
            "",
            0,
        ),
        ("<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "", "a\n\nb", 0),
        (f"<|channel|>analysis<|message|>a<|end|>{TO}{{}}<|call|>", "a", "", 1),
        (f"<|channel|>analysis<|message|>a{TO}{{}}", "a", "", 1),
        (" to=functions.look<|channel|>commentary<|message|>{}<|end|>", "", "", 1),
        ("<|channel|>analysis to=functions.look code<|message|>{}", "", "", 1),
        (f"{TO}{{}}<|call|><|start|>assistant<|channel|>final<|message|>Done", "", "Done", 1),
        (f"{TO}{{x}}<|call|><|start|>assistant<|channel|>final<|message|>Done", "", "{x}\n\nDone", 0),
        (f'{TO}{{"town": "<|call|> <|end|>"}}<|call|>', "", "", 1),
        ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b", 0),
        ("<|channel|>analysis<|message|>write <|call|> or <|channel|>", "write <|call|> or ", "", 0),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|chan", "a", "", 0),
        ("<|channel|>commentary to=functions.look <|constrain|>json", "", "", 0),
        ('<|channel|>final {"a": 1}', "", '{"a": 1}', 0),
        ("<|channel|>??<|end|><|start|>assistant<|channel|>analysis<|message|>a", "a", "", 0),
        ("<|channel|>commentary to=assistant<|channel|>analysis<|message|>a", "a", "", 0),
        ("<|channel|>other<|message|>a<|end|>", "", "a", 0),
        ("<|channel|>commentary to=python <|constrain|>code<|message|>print()", "", "print()", 0),
        ("No channel.", "", "No channel.", 0),
        ("assistants know", "", "assistants know", 0),
        ("", "", "", 0),
    ],
)
def test_channels(text: str, thoughts: str, content: str, calls: int) -> None:
    said = read(FAMILIES[0], text, whole=True)
    assert (said.thoughts, said.content, len(said.calls)) == (thoughts, content, calls)


def test_thoughts_in_channels_stay_in_the_content_if_asked_for() -> None:
    text = "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So."
    form = AnswerForm(markers_to_read(FAMILIES[0].sign), apart=False)
    for step in STEPS:
        assert answered(form, text, step) == Said("<|channel|>analysis<|message|>Why?<|end|>So.")


def test_a_mark_beside_the_key_decides_over_the_schema() -> None:
    family = dsml("v3.2")
    look = (
        '<｜DSML｜invoke name="look">\n<｜DSML｜parameter name="x" string="{}">2</｜DSML｜parameter>\n</｜DSML｜invoke>'
    )
    assert called(read(family, family.text(look.format("true")))) == [("look", {"x": "2"})]
    assert called(read(family, family.text(look.format("false")))) == [("look", {"x": 2})]
    assert read(family, family.text('<｜DSML｜invoke name="now"/>')).calls == [Call("now", "{}", whole=True)]


def ask(url: str, said: str, choice: Any, **options: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The content and the calls of a chat's answer."""
    tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    given = {"messages": [{"role": "user", "content": said}], "tools": tools, "tool_choice": choice, "temperature": 0}
    reply = httpx.post(f"{url}/v1/chat/completions", json=given | {"max_tokens": 900} | options, timeout=60)
    assert reply.status_code == 200, reply.text
    message = reply.json()["choices"][0]["message"]
    functions = [call["function"] for call in message.get("tool_calls") or []]
    return message["content"] or "", [(each["name"], json.loads(each["arguments"])) for each in functions]


@EACH
def test_a_service_reads_and_forces_calls_in_the_form_of_the_family(family: Family) -> None:
    ends = " </arg_value> </parameter>,"  # a grammar lets no value hold the marker that ends it
    forced = family.thoughts + family.text(family.look).replace(ends, "")
    named = {"type": "function", "function": {"name": "now"}}
    with parrots("target", TEMPLATE + "{# " + family.sign + " #}") as url:
        text = family.thoughts + family.said + family.text(family.look, family.now)
        assert ask(url, text, "auto") == ("I look.", [LOOK, NOW])
        content, calls = ask(url, forced, "required")
        assert content == "" and (
            calls == [("look", ARGUMENTS | {"town": TOWN.replace(ends, "")})]
            or (family.style is Style.OLMO and calls[0][0] == "look")  # its quotes are Python's
        )
        content, calls = ask(url, f"{family.thoughts}No!", named, parallel_tool_calls=False)
        assert content == "" and {name for name, _ in calls} == {"now"}


def test_json_in_place_of_an_unknown_form_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with parrots("stranger", TEMPLATE.replace("tool_call>", "unknown>")) as url:
        for _ in range(2):
            assert ask(url, "No!", "required", parallel_tool_calls=False, max_tokens=60)
    assert caplog.text.count("shows no style of calls that is known here") == 1
