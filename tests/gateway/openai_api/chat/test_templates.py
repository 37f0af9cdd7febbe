"""Prompts of chats have the ids that transformers gives them: templates in the styles of well-known ones.

The templates in `templates.txt`, each behind a line with its name, were written for this test. The first line of each
says what it takes: arguments of calls as an object or as text, null as a content beside calls, contents in parts by
which roles (`only`: nothing else).
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.openai_api.chat.prompt import chat_parts
from gateway.openai_api.chat.template import Renderer, TemplateMessage
from models import DEFAULT_TARGET
from specpair.engines.vocabulary import PromptSpan, Vocabulary
from specpair.protocol.errors import InvalidRequest

pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from jinja2 import TemplateError  # noqa: E402 - as above
from tokenizers import Tokenizer  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

from backends.hugging_face import HfVocabulary  # noqa: E402
from tests.stand_ins.tiny_folders import tokenizer_of

pytestmark = pytest.mark.engine("torch")

_NAMED = re.split(r"^===== (.+)\n", Path(__file__).with_name("templates.txt").read_text(encoding="utf-8"), flags=re.M)
TEMPLATES = dict(zip(_NAMED[1::2], _NAMED[2::2], strict=True))
TAKES = re.compile(r"\{#- arguments: (object|text|none); null: (yes|no); parts: ([a-z ]+) -#\}")
TOKEN = re.compile(
    r"<[|｜][\w▁/]+[|｜]>|\[/?[A-Z_]+\]|</?(?:think|tool_call|tool_response|start_of_turn|end_of_turn|sop)>"
)
BEGIN, END = 0, 1


def user(content: Any) -> TemplateMessage:
    return {"role": "user", "content": content}


def assistant(content: Any, *calls: dict[str, Any], **others: Any) -> TemplateMessage:
    called = [
        {"id": f"call0000{at}", "type": "function", "function": {"name": "look", "arguments": json.dumps(call)}}
        for at, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, **({"tool_calls": called} if called else {}), **others}


def system(content: Any) -> TemplateMessage:
    return {"role": "system", "content": content}


def tool(content: str, call: int = 0) -> TemplateMessage:
    return {"role": "tool", "tool_call_id": f"call0000{call}", "name": "look", "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


TOWN = {"town": "Köln", "days": 3, "exact": True, "by": ["x", {"y": None}]}
# Each content ends with a word of its own, so that one can see whether it is shown.
CONVERSATIONS: dict[str, list[TemplateMessage]] = {
    "a question": [user("Is 1 < 2 & 3 > 2, 'said' \"ünder\"? amber")],
    "a system": [system("Be brief.\n  bronze "), user("  Hello \n cobalt\n\n")],
    "turns": [user("Hi amber"), assistant("Hello!\n\n  bronze"), user("日本語 🙂 cobalt")],
    "a long talk": [
        *(system("Rules amber"), user("One bronze"), assistant("Two cobalt"), user("Three denim")),
        *(assistant("Four ebony"), user("Five flax")),
    ],
    "thoughts in a content": [
        *(user("Why? amber"), assistant("<think>\nlong thoughts\n</think>\n\n  because bronze"), user("So? cobalt")),
    ],
    "thoughts beside": [
        *(user("Why? amber"), assistant("Because bronze", reasoning_content=" deep thoughts "), user("So? cobalt")),
    ],
    "a call": [user("Weather? amber"), assistant(None, TOWN), tool("it's <5 & ünder bronze")],
    "thoughts before a call": [
        *(user("Weather? amber"), assistant("", TOWN, reasoning_content="look it up"), tool('{"t": 5} bronze')),
    ],
    "two calls": [
        *(user("Weather? amber"), assistant("", TOWN, {}), tool("5 bronze"), tool("6 cobalt", 1)),
        *(assistant("Cold denim"), user("Thanks ebony")),
    ],
    "a call with text": [
        *(user("Weather? amber"), assistant("I look. bronze", TOWN), tool("5 cobalt"), assistant("Cold denim")),
        user("Thanks ebony"),
    ],
    "parts": [
        *(system(parts("Be brief. amber")), user(parts("first ", "second bronze")), assistant("Yes cobalt")),
        user("denim"),
    ],
    "twice the same role": [user("One amber"), user("Two bronze")],
}  # fmt: skip


class Both(NamedTuple):
    """The same vocabulary here and in transformers."""

    ours: Vocabulary
    theirs: Any


@pytest.fixture(scope="module")
def both() -> Both:
    content = tokenizer_of(DEFAULT_TARGET)
    names = {name for template in TEMPLATES.values() for name in TOKEN.findall(template)}
    names -= {each["content"] for each in content["added_tokens"]}
    size = len(content["model"]["vocab"])
    for at, name in enumerate(sorted(names), size):
        special = not re.fullmatch("</?(think|tool_call|tool_response)>", name)  # these are text, as in real models
        content["added_tokens"].append({**content["added_tokens"][0], "id": at, "content": name, "special": special})
    begin, end = (each["content"] for each in content["added_tokens"][:2])
    text = json.dumps(content)
    ours = HfVocabulary(text, size=size + len(names), begin=BEGIN, ends=frozenset({END}), end=END, adds_begin=False)
    theirs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(text), bos_token=begin, eos_token=end)
    return Both(ours, theirs)


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with closing(Renderer()) as renderer:
        yield renderer


def as_taken(message: TemplateMessage, template: str) -> TemplateMessage:
    """A message in the form that the first line of the template names."""
    found = TAKES.match(template)
    assert found, "a template says first what it takes"
    arguments, null, roles = found.groups()
    content = message["content"]
    if content is None and null == "no":
        content = ""
    if isinstance(content, str) and roles == "only":
        content = parts(content)
    if isinstance(content, list) and roles != "only" and message["role"] not in roles.split():
        content = "".join(part["text"] for part in content)
    taken = {**message, "content": content}
    if arguments == "object" and "tool_calls" in message:
        taken["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return taken


def shown(message: TemplateMessage, prompt: str) -> bool:
    content = message["content"]
    texts = [part["text"] for part in content] if isinstance(content, list) else [content or ""]
    return all(word in prompt for text in texts for word in text.split()[-1:])


ONE_CALL = ("gpt-oss",)  # templates that show the first call of a message only


def _check_divided(which: str, refusal: str, render: Callable[[], list[PromptSpan]], said: Any) -> None:
    """Messages with calls are divided, where the template shows all of them then. Others are refused."""
    refused = pytest.raises(InvalidRequest, match=refusal)
    if "call" not in which:
        with refused:
            render()
        return
    with suppress(InvalidRequest):
        prompt = "".join(part.text for part in render())
        assert all(shown(message, prompt) for message in said)
        return
    with refused:
        render()


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_have_the_ids_of_transformers(both: Both, renderer: Renderer, name: str) -> None:
    template = TEMPLATES[name]
    same = 0
    for which, said in CONVERSATIONS.items():
        try:
            chat = [as_taken(message, template) for message in said]
            (prompt,), _ = render_jinja_template(
                [chat], chat_template=template, add_generation_prompt=True, **both.theirs.special_tokens_map
            )
        except TemplateError as error:
            refusal = re.escape(f"messages: the chat template refuses them: {error}")
            _check_divided(which, refusal, partial(chat_parts, template, both.ours, said, renderer), said)
            continue
        if lost := [at for at, message in enumerate(said) if not shown(message, prompt)]:
            refusal = rf"messages\.{lost[0]}: .* does not show the content"
            _check_divided(which, refusal, partial(chat_parts, template, both.ours, said, renderer), said)
            continue
        found = chat_parts(template, both.ours, said, renderer)
        if which == "two calls" and name in ONE_CALL:
            assert all(shown(message, "".join(part.text for part in found)) for message in said)
            continue
        assert "".join(part.text for part in found) == prompt, which
        assert both.ours.encode_parts(found) == both.theirs(prompt, add_special_tokens=False)["input_ids"], which
        same += 1
    assert same >= 4, "most templates take more"
