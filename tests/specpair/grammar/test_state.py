"""A text follows its grammar: masks are those of its place in it, whatever was tried and taken back on the way."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, ByteVocabulary
from specpair.grammar.compiling import Grammars
from specpair.speculation.sampling.grammar import GrammarText
from specpair.speculation.sampling.row_changes import LogitProcessor, following
from tests.examples import examples

VOCABULARY = ByteVocabulary()
GRAMMARS = Grammars(VOCABULARY)
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "born": {"type": "integer", "minimum": 1800, "maximum": 2030},
        "tags": {"type": "array", "items": {"enum": ["ä", "b", 3]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "born"],
    "additionalProperties": False,
}
ASKED = {
    "schema": GrammarText("json_schema", json.dumps(PERSON)),
    "regex": GrammarText("regex", "[ab]{2,4}(x|yz)*"),
    "choice": GrammarText("choice", '["yes", "yesterday", "no"]'),
    "lark": GrammarText("grammar", 'start: "(" start ")" | /[0-9]/'),
    "gbnf": GrammarText("grammar", 'root ::= "a" b\nb ::= [0-9] | b "c"'),
}


def state(kind: str) -> LogitProcessor:
    return GRAMMARS(ASKED[kind])


def allowed(processor: LogitProcessor, size: int = VOCABULARY.size) -> list[int]:
    row = np.zeros(size, np.float32)
    processor.process(row)
    assert set(row.tolist()) <= {0.0, -np.inf}
    return np.flatnonzero(row == 0).tolist()


def after(kind: str, tokens: Sequence[int]) -> LogitProcessor:
    made = state(kind)
    for token in tokens:
        made.push(token)
    return made


def written(kind: str, draws: Sequence[int]) -> list[int]:
    """A text that keeps to the grammar: each of `draws` chooses among what is allowed."""
    made, tokens = state(kind), list[int]()
    for draw in draws:
        possible = allowed(made)
        tokens.append(possible[draw % len(possible)])
        if tokens[-1] == END:
            break
        made.push(tokens[-1])
    return tokens


DRAWS = st.lists(st.integers(0, 10**6), max_size=40)


@pytest.mark.parametrize("kind", ASKED)
@examples(30)
@given(draws=DRAWS, steps=st.lists(st.tuples(st.booleans(), st.integers(0, END)), max_size=30))
def test_what_was_tried_and_taken_back_leaves_no_trace(
    kind: str, draws: list[int], steps: list[tuple[bool, int]]
) -> None:
    tokens = written(kind, draws)
    made = after(kind, tokens)
    pushed: list[int] = []
    for back, token in steps:
        if back and pushed:
            made.pop(pushed.pop())
        else:
            possible = allowed(made)
            pushed.append(token if token % 2 else possible[token % len(possible)])
            made.push(pushed[-1])
    while pushed:
        made.pop(pushed.pop())
    assert allowed(made) == allowed(after(kind, tokens))


@pytest.mark.parametrize("kind", ASKED)
@examples(30)
@given(draws=DRAWS)
def test_what_is_allowed_alone_and_certain_agrees_with_the_mask(kind: str, draws: list[int]) -> None:
    tokens = written(kind, draws)
    made = after(kind, tokens)
    possible = allowed(made)
    if tokens[-1:] == [END]:
        assert possible == [*range(VOCABULARY.size)], "behind the end nothing is masked"
        return
    assert [token for token in range(VOCABULARY.size) if made.allows(token)] == possible
    assert made.only() == (possible[0] if len(possible) == 1 else None)
    chain = following([state(kind)], 0)
    assert chain is not None
    chain.commit(tokens)
    certain = chain.certain(8)
    for at, token in enumerate(certain):
        assert allowed(after(kind, [*tokens, *certain[:at]])) == [token]
    chain.commit([*tokens, *certain])
    assert len(certain) == 8 or chain.only() is None


@examples(60)
@given(draws=st.lists(st.integers(0, 10**6), min_size=200, max_size=200))
def test_texts_of_a_schema_are_valid(draws: list[int]) -> None:
    tokens = written("schema", draws)
    assert tokens[-1] == END, "the schema bounds the length"
    person = json.loads(VOCABULARY.decode(tokens))
    tags = person.pop("tags", ["b"])
    assert person.keys() == {"name", "born"} and len(person["name"]) <= 4 and 1800 <= person["born"] <= 2030
    assert 1 <= len(tags) <= 3 and all(each in ("ä", "b", 3) for each in tags)


def test_a_grammar_may_begin_behind_a_token() -> None:
    made = GRAMMARS(ASKED["choice"]._replace(after="<end>"))  # an end token ends no text here
    free = [*range(VOCABULARY.size)]
    for token in b"no, yes":
        assert allowed(made) == free and made.allows(token) and made.only() is None
        made.push(token)
    made.push(END)
    assert allowed(made) == [ord("n"), ord("y")]
    made.push(ord("n"))
    assert made.only() == ord("o")
    made.push(ord("x"))
    for token in (ord("x"), ord("n")):
        made.pop(token)
    assert allowed(made) == [ord("n"), ord("y")]
    made.pop(END)
    assert allowed(made) == free
    made.push(END)
    assert allowed(made) == [ord("n"), ord("y")]
