"""Schemas get plainer, and what is valid under them stays the same."""

import json
from itertools import permutations, product
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llguidance import LLMatcher

from backends.scripted import ByteVocabulary
from specpair.grammar.compiling import Grammars
from specpair.grammar.plain_schema import FORMATS, places, plain
from specpair.grammar.tokenizer import tokenizer_of
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import GrammarText

GRAMMARS = Grammars(ByteVocabulary(), tries=False)
TEXT, COUNT = {"type": "string"}, {"type": "integer"}
KINDS = {
    name: {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]} for name in ("cat", "dog")
}


def taken(schema: object) -> bool:
    try:
        GRAMMARS(GrammarText("json_schema", json.dumps(schema)))
    except InvalidRequest:
        return False
    return True


@pytest.mark.parametrize(
    "given",
    [
        *({"propertyNames": each} for each in ({}, True, TEXT, {"pattern": ".*"}, {"minLength": 0, "title": "a name"})),
        *({"propertyNames": {"type": ["string", "null"], "format": "name"}}, {"propertyNames": {"$ref": "#/$defs/a"}}),
        *({"uniqueItems": False}, {"uniqueItems": True, "maxItems": 1}, {"type": "string", "uniqueItems": True}),
        *({"minProperties": 0}, {"minProperties": 1, "properties": {"a": {}, "b": {}}, "required": ["a"]}),
        {"properties": {"a": {}}, "maxProperties": 1, "additionalProperties": False},
        *({"type": "string", "format": each} for each in ("phone", "uri-reference", "binary", "", 3)),
        *({each: "x"} for each in ("contentEncoding", "contentMediaType", "$comment", "title", "default", "x-order")),
        *({each: True} for each in ("deprecated", "readOnly", "writeOnly", "nullable", "$recursiveAnchor", "example")),
        *({"$schema": "my schema"}, {"$id": "my schema"}, {"$id": "#a"}, {"$dynamicAnchor": "a"}, {"$anchor": "a"}),
        *({"$defs": {"b": {"not": TEXT}}}, {"examples": [1]}, {"definitions": {}}),
        *({"if": TEXT}, {"then": TEXT}, {"else": TEXT}, {"if": TEXT, "then": {}, "else": True}),
        *(
            {"minContains": 2},
            {"maxContains": 0},
            {"contains": TEXT, "minContains": 0},
            {"type": "null", "contains": {}},
        ),
        *({"dependentRequired": {}}, {"dependentRequired": {"a": []}}, {"dependentSchemas": {"a": {}}}),
        *({"dependentRequired": {"a": ["b"]}, "required": ["b"]}, {"dependencies": {"a": ["a"], "b": True}}),
        *({"patternProperties": {}}, {"unevaluatedProperties": True}, {"unevaluatedItems": {}}, {"allOf": []}),
        *({"items": {}, "unevaluatedItems": False}, {"additionalProperties": {}, "unevaluatedProperties": False}),
        *({"not": False}, {"not": {"not": {}}}, {"type": "string", "not": {"type": "null"}}, {"type": "any"}),
        *({each: None} for each in ("enum", "required", "properties", "items", "pattern", "minLength", "anyOf")),
    ],
    ids=json.dumps,
)
def test_a_keyword_that_asks_for_nothing_is_taken_wherever_it_stands(given: Any) -> None:
    given = given | {"$defs": {"a": TEXT} | given.get("$defs", {})}
    assert taken(given)
    assert taken({"properties": {"a": {"items": given | {"$defs": {}}}}, "$defs": given["$defs"]})


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"propertyNames": {"pattern": "^a"}}, {"patternProperties": {"^a": True}, "additionalProperties": False}),
        (
            {"propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": COUNT},
            {"properties": {"a": COUNT, "b": COUNT}, "additionalProperties": False},
        ),
        (
            {"propertyNames": {"maxLength": 9.0}, "properties": {"a": TEXT}},
            {"properties": {"a": TEXT}, "patternProperties": {"^(.|\\n){0,9}$": True}, "additionalProperties": False},
        ),
        ({"anyOf": [{"not": {}}, TEXT]}, {"anyOf": [False, TEXT]}),
        ({"type": ["string", "null"], "not": {"type": "null"}}, {"type": ["string"]}),
        ({"contains": {}, "minItems": 1, "minContains": 2, "maxContains": 3}, {"minItems": 2, "maxItems": 3}),
        ({"required": [], "unevaluatedProperties": False}, {"required": [], "additionalProperties": False}),
        ({"oneOf": [{"const": 1}, {"enum": [2, "b"]}]}, {"anyOf": [{"const": 1}, {"enum": [2, "b"]}]}),
        (
            {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": KINDS},
            {"anyOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": KINDS},
        ),
        ({"type": "string", "maxLength": 2.0}, {"type": "string", "maxLength": 2}),
    ],
)
def test_a_keyword_that_another_says_gets_its_form(given: Any, made: Any) -> None:
    assert plain(given) == made
    assert taken(given)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        *(({"propertyNames": each}, "propertyNames") for each in (False, COUNT, {"format": "date"})),
        (
            {"propertyNames": {"pattern": "^a"}, "properties": {"a": {}}, "additionalProperties": COUNT},
            "propertyNames",
        ),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "if"),
        ({"oneOf": [{"const": 1}, {"const": 1.0}]}, "oneOf"),
        ({"oneOf": [COUNT, {"type": "number"}]}, "oneOf"),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"type": "number", "not": COUNT}, "not"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"contains": TEXT}, "contains"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"const": 1}}}}, "not"),
    ],
)
def test_what_cannot_be_kept_to_stays_and_its_place_is_found(given: Any, key: str) -> None:
    assert not taken(given)
    assert [place.rpartition("/")[2] for place, _ in places({"properties": {key: given}}, key)] == [key]


OBJECTS = [
    dict(zip(names, values, strict=True))
    for size in range(3)
    for names in permutations(("a", "b", "abcd", "B"), size)
    for values in product((True, 1), repeat=size)
]
FLAG = {"type": "boolean"}


def writable(schema: object, wanted: object) -> bool:
    """Whether a text under the schema can be this object."""
    state = GRAMMARS(GrammarText("json_schema", json.dumps(schema)))
    for byte in json.dumps(wanted).encode():
        if not state.allows(byte):
            return False
        state.push(byte)
    return state.allows(min(ByteVocabulary().ends))


@pytest.mark.parametrize("names", [{"pattern": "^[a-z]+$"}, {"maxLength": 3}, {"minLength": 2}, {"enum": ["a", "B"]}])
@pytest.mark.parametrize("others", [{}, {"additionalProperties": False}, {"additionalProperties": COUNT}, None])
@pytest.mark.parametrize(
    "known", [{}, {"properties": {"a": FLAG}}, {"properties": {"a": FLAG, "B": FLAG}}, {"properties": {"B": FLAG}}]
)
@pytest.mark.parametrize("required", [[], ["a"]])
def test_names_of_properties_are_kept_to(names: object, others: Any, known: Any, required: list[str]) -> None:
    """What can be written under such a schema is what is valid, or the schema is refused."""
    more = {"unevaluatedProperties": False} if others is None else others
    schema = {"type": "object", "propertyNames": names, "required": required, **known, **more}
    is_valid = jsonschema_rs.validator_for(schema).is_valid
    valid = [each for each in OBJECTS if is_valid(each)]
    if not taken(schema):
        assert not valid or (more == {"additionalProperties": COUNT} and "propertyNames" in plain(schema)), plain(
            schema
        )
        return
    can = [each for each in OBJECTS if writable(schema, each)]
    assert all(is_valid(each) for each in can)
    assert {frozenset(each.items()) for each in can} == {frozenset(each.items()) for each in valid}


def test_the_formats_are_those_of_llguidance() -> None:
    """One that it learns is enforced from then on."""
    for name in (*FORMATS, "idn-email", "iri", "uri-reference", "regex", "json-pointer", "byte", "int32"):
        source = f"start: %json {json.dumps({'type': 'string', 'format': name})}"
        assert taken({"type": "string", "format": name}), name
        matcher = LLMatcher(tokenizer_of(ByteVocabulary()), source, log_level=0)
        assert matcher.is_error() != (name in FORMATS), name


NAMES, SMALL = st.sampled_from("ab"), st.integers(0, 2)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, 1.5, "", "a", "ab", "\n"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["string", "number", "integer", "null", "object", "array", "boolean"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, named = st.lists(inner, min_size=1, max_size=2), st.dictionaries(NAMES, inner, max_size=2)
    lists = st.lists(NAMES, unique=True, max_size=2)
    keywords = {
        **dict.fromkeys(("items", "contains", "propertyNames", "additionalProperties", "unevaluatedProperties"), inner),
        **dict.fromkeys(("not", "if", "then", "else", "unevaluatedItems"), inner),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        **dict.fromkeys(("minContains", "maxContains", "minItems", "maxItems", "minLength", "maxLength"), SMALL),
        **dict.fromkeys(("minProperties", "maxProperties"), SMALL),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", ".*"]), inner, max_size=1),
        "pattern": st.sampled_from(["", "^a", ".*", "b$"]),
        "required": lists,
        "dependentRequired": st.dictionaries(NAMES, lists, max_size=2),
        "uniqueItems": st.booleans(),
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=2),
        "const": VALUES,
    }
    picked = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return picked.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


@given(
    st.recursive(st.sampled_from([True, False, {}, TEXT]), schemas, max_leaves=6),
    st.lists(VALUES, min_size=8, max_size=8),
)
def test_what_is_valid_stays_the_same(schema: Any, values: list[Any]) -> None:
    made = plain(schema)
    assume("unevaluated" not in json.dumps(made))  # llguidance refuses it
    before, after = (jsonschema_rs.validator_for(each) for each in (schema, made))
    for value in values:
        assert before.is_valid(value) == after.is_valid(value), (made, value)
