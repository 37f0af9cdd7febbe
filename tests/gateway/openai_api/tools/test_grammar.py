"""Texts that keep to the grammar of calls are read as calls of the tools, with arguments that fit."""

import json
import re
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, ByteVocabulary
from gateway.openai_api.tools.grammar import calls_grammar
from gateway.openai_api.tools.reader import BareKeys, Parameters
from gateway.openai_api.tools.styles import NOTATIONS, Style
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.grammar.compiling import Grammars
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import GrammarText
from tests.examples import examples
from tests.gateway.openai_api.tools.support import Call, read

POINT = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["x"]}
TOOLS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "unit": {"enum": ["celsius", "kelvin"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "draw": {
        "type": "object",
        "properties": {
            "closed": {"type": "boolean"},
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 1, "maxItems": 2},
            "label": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 5}]},
        },
        "required": ["points", "label"],
        "additionalProperties": False,
        "$defs": {"point": POINT | {"additionalProperties": False}},
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}

DOCUMENT = {
    "type": "object",
    "properties": {"mood": {"enum": ["calm", "glad"]}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["mood"],
    "additionalProperties": False,
}


class WithMarkers(Vocabulary):
    """Bytes, and the markers of a style as tokens of their own: control tokens, or ordinary ones."""

    def __init__(self, markers: tuple[str, ...], control: bool) -> None:
        plain = ByteVocabulary()
        kind = Kind.CONTROL if control else Kind.ORDINARY
        pieces = [*plain.pieces, *(each.encode() for each in markers)]
        super().__init__(pieces, [*plain.kinds, *[kind] * len(markers)], plain.begin, plain.ends)
        self.ids = {marker: plain.size + at for at, marker in enumerate(markers)}

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return list(text.encode())


def written(style: Style, seed: int, control: bool, most: int = 600, tools: Any = TOOLS, **how: Any) -> str | None:
    """A text drawn from the masks of the grammar alone; None: it did not end. Letters and the end are preferred."""
    writing = NOTATIONS[style].writing()
    vocabulary = WithMarkers(writing.tokens, control)
    grammar = calls_grammar(writing, tools, vocabulary.ids if control else {}, **how)
    assert grammar is not None
    state, random = Grammars(vocabulary)(GrammarText("grammar", grammar)), np.random.default_rng(seed)
    liked = np.zeros(vocabulary.size, np.float32)
    liked[[*b'abcdefgh",}])<', *vocabulary.ids.values()]] = 3
    liked[END], tokens, planned = -3 if how.get("free") else 6, list[int](), list[int]()
    ends = [writing.arguments.end] if isinstance(writing.arguments, Parameters) else []
    for _ in range(most):
        if not planned and random.random() < 0.1:  # what noise would hardly write
            texts = [_tokens(each, vocabulary) for each in (writing.trigger or "", *ends, writing.end)]
            planned = [[END], *texts][random.integers(0 if how.get("free") else 1, len(texts) + 1)]
        row = (random.standard_normal(vocabulary.size) + liked).astype(np.float32)
        if planned and state.allows(planned[0]):
            row[planned.pop(0)] = 20
        else:
            planned = []
        state.process(row)
        tokens.append(int(row.argmax()))
        if tokens[-1] == END:
            return b"".join(vocabulary.pieces[each] for each in tokens[:-1]).decode(errors="replace")
        state.push(tokens[-1])
    return None


def _tokens(text: str, vocabulary: WithMarkers) -> list[int]:
    """A text in bytes, but for the markers."""
    parts = re.split("|".join(f"({re.escape(each)})" for each in vocabulary.ids) or "(?!)", text)
    tokens = [[vocabulary.ids[part]] if part in vocabulary.ids else list(part.encode()) for part in parts if part]
    return [token for each in tokens for token in each]


FREE = [each for each in Style if NOTATIONS[each].writing().trigger]  # which calls may stand beside text
EACH_STYLE = pytest.mark.parametrize("style", Style)


@pytest.mark.parametrize(("style", "free"), [*((each, False) for each in Style), *((each, True) for each in FREE)])
@examples(12)
@given(seed=st.integers(0, 10**6), control=st.booleans(), parallel=st.booleans())
def test_each_call_of_a_text_fits(style: Style, free: bool, seed: int, control: bool, parallel: bool) -> None:
    text = written(style, seed, control, 300 if free else 600, parallel=parallel, free=free)
    if text is None:
        return
    said = read(style, TOOLS, text)
    assert free or (said.calls and not said.content.strip()), text
    assert free or parallel or len(said.calls) == 1
    for call in said.calls:
        assert _fits(style, call), text


@EACH_STYLE
@examples(12)
@given(seed=st.integers(0, 10**6), control=st.booleans(), fits=st.booleans())
def test_a_text_is_calls_or_a_document(style: Style, seed: int, control: bool, fits: bool) -> None:
    tools = TOOLS if fits else dict.fromkeys(TOOLS)
    text = written(style, seed, control, tools=tools, document=DOCUMENT)
    if text is None:
        return
    said = read(style, TOOLS, text)
    if said.calls:
        assert not said.content.strip() and all(call.whole for call in said.calls), text
        assert all(isinstance(json.loads(call.arguments), dict) for call in said.calls), text
    else:
        assert jsonschema_rs.is_valid(DOCUMENT, json.loads(said.content)), text


@EACH_STYLE
@pytest.mark.parametrize(
    ("schema", "documents"),
    [
        (DOCUMENT, ['{"mood": "calm"}']),
        (True, ['{"mood": "calm"}', '{"name": "x", "b": [1]}', '["a"]', '[{"name": {}}]', "7"]),
        ({"type": "object"}, ['{"nam": 1}', '{"name": "no", "parameters": 7}', '{"name": "nowhere"}', "{}"]),
        ({"type": "array"}, ["[]", '[{"names": "now"}, {"name": "now"}]']),
    ],
)
def test_a_document_and_a_call_can_begin(style: Style, schema: Any, documents: list[str]) -> None:
    writing = NOTATIONS[style].writing()
    vocabulary = WithMarkers(writing.tokens, True)
    grammar = calls_grammar(writing, TOOLS, vocabulary.ids, document=schema)
    now = f"{writing.before}{writing.begin}now{':7' if writing.number else ''}{writing.middle}"
    plain = '{"name": "now", "arguments": {}}'
    for text in (*documents, now, *([plain] if writing.plain else [])):
        state = Grammars(vocabulary)(GrammarText("grammar", grammar or ""))
        for token in _tokens(text, vocabulary):
            assert state.allows(token), text
            state.push(token)
        assert state.allows(END) == (text != now)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("style", FREE)
def test_behind_the_trigger_only_a_call_can_come(style: Style, control: bool) -> None:
    writing = NOTATIONS[style].writing()
    vocabulary = WithMarkers(writing.tokens, control)
    grammar = calls_grammar(writing, TOOLS, vocabulary.ids if control else {}, free=True)
    state = Grammars(vocabulary)(GrammarText("grammar", grammar or ""))
    for token in [*b"Let me look. ", *_tokens(writing.trigger or "", vocabulary)]:
        assert state.allows(token)
        state.push(token)
    behind = (writing.before + writing.begin)[len(writing.trigger or "") :]
    texts = [behind + name for name in TOOLS]
    names = {_tokens(text, vocabulary)[0] if control else text.encode()[0] for text in texts}
    allowed = {token for token in range(vocabulary.size) if state.allows(token)}
    assert {token for token in allowed if control or token < 256} == names and not state.allows(END)


def test_a_style_whose_calls_look_like_text_has_no_free_grammar() -> None:
    assert calls_grammar(NOTATIONS[Style.LLAMA].writing(), TOOLS, {}, free=True) is None


@pytest.mark.parametrize(
    ("style", "schema"),
    [
        (Style.GEMMA, {"properties": {"a": {"enum": [{"b": 1}]}}}),
        (Style.GEMMA, {"properties": {"a": {"$ref": "elsewhere.json"}}}),
        (Style.PYTHONIC, {"properties": {"not-a-name": {}}}),
    ],
)
def test_what_a_style_cannot_write_is_refused_by_name(style: Style, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"the parameters of f have .*cannot be kept to"):
        calls_grammar(NOTATIONS[style].writing(), {"f": schema}, {})


def test_a_schema_that_refers_to_itself_makes_a_grammar() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}}
    for style in Style:
        grammar = calls_grammar(NOTATIONS[style].writing(), {"f": tree | {"$defs": {"tree": tree}}}, {})
        assert grammar is not None
        Grammars(ByteVocabulary())(GrammarText("grammar", grammar))


def _fits(style: Style, call: Call) -> bool:
    """Whether a call is whole, and its arguments are valid."""
    schema = TOOLS[call.name]
    loose = isinstance(NOTATIONS[style].writing().arguments, Parameters | BareKeys)  # lengths of strings as they are
    valid = jsonschema_rs.is_valid(_without_lengths(schema) if loose else schema, json.loads(call.arguments))
    return bool(call.whole) and valid


def _without_lengths(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_lengths(each) for each in node]
    if isinstance(node, dict):
        return {name: _without_lengths(each) for name, each in node.items() if name != "maxLength"}
    return node
