"""Grammars of free texts: as contents of JSON strings, they let through the same texts."""

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from backends.scripted import ByteVocabulary
from gateway.openai_api.tools.lark import in_json, lark_of, may_not_end
from specpair.grammar.tokenizer import tokenizer_of
from tests.examples import examples
from tests.gateway.openai_api.tools.support import PATCH, TEXT


@cache
def tokenizer() -> LLTokenizer:
    return tokenizer_of(ByteVocabulary(258))


def lets_through(grammar: str, text: str) -> bool:
    matcher = LLMatcher(tokenizer(), LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = [*text.encode()]
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def check(syntax: str, definition: str, text: str) -> bool:
    """Whether a grammar lets a text through, by itself and in JSON alike."""
    found = lets_through(f"start: %lark {{\n{lark_of(syntax, definition)}\n}}", text)
    inner = in_json(syntax, definition)
    quoted = json.dumps(text, ensure_ascii=False)
    assert lets_through(f'start: "<\\"" %lark {{\n{inner}\n}} "\\">"', f"<{quoted}>") == found, inner
    return found


LARKS = {
    "a patch": (PATCH, [TEXT, TEXT[:-1]], [TEXT[1:], TEXT + "x", TEXT.replace("+x", "x")]),
    "lines with names of terminals": (
        'start: LINE+\nLINE: /(#[^\\n]*)?/ END\nEND: "\\n"  // "a comment"\n',
        ['#a"b\n\n#c\\\n', "\n"],
        ["x\n", "#a"],
    ),
    "pairs": (
        'start: pair+\npair: KEY "=" VALUE _NL\nKEY: /[a-z_]+/\nVALUE: /"[^"\\n]*"/ | NUMBER\n_NL: /\\r?\\n/\n'
        "%import common.NUMBER",
        ['a="x, y"\nb=1.5\r\n', 'a=""\n'],
        ["a=x\n", 'a="\n"\n'],
    ),
    "imports, and what is ignored": (
        'start: item ("," item)*\nitem: ESCAPED_STRING | INT\n%import common (ESCAPED_STRING, INT, WS)\n%ignore WS\n',
        ['"a\\n", 12', '1,\n"\\""', "7 , 8"],
        ['"a', "a"],
    ),
    "ranges and cases": (
        'start: "select"i SP "a".."c" NL\nSP: " "\n%import common.NEWLINE -> NL',
        ["SELECT b\n", "select a\r\n\n"],
        ["select d\n", "select b"],
    ),
    "branches": ('start: x+\nx: /a(\\n.*)?;/ | /"|\\\\/', ['a;"', "\\a;"], ["b"]),
}


@pytest.mark.parametrize("name", LARKS)
def test_a_lark_grammar_lets_through_the_same_texts_in_json(name: str) -> None:
    definition, right, wrong = LARKS[name]
    if name == "branches":  # a part of any length, behind which the lexeme goes on
        with pytest.raises(ValueError, match="a part of any length before its end"):
            in_json("lark", definition)
        return
    assert all(check("lark", definition, text) for text in right)
    assert not any(check("lark", definition, text) for text in wrong)


@pytest.mark.parametrize(
    ("definition", "right", "wrong"),
    [
        (r"[^a]+", 'b\n"\\', "a"),
        (r"(?s:.*)", 'a\nb"', None),
        (r".*", 'ab\t"', "a\nb"),
        (r"\s+x/\d{2,3}", " \n\tx/12", "x/12"),
        (r"\x07a", "\x07a", "a"),
        (r'[\x00-\x1f"]', "\n", "a"),
        (r"a\\b", "a\\b", "ab"),
        (r'\["(x|\n)"\]', '["\n"]', "[x]"),
        (r"(?i)SELECT \w+", "select ab", 'select "'),
        (r'[\w\-/"]+', 'a-b/"', "a b"),
        (r'^\{"a"\}$', '{"a"}', "a"),
        (r"\pL+", "äb", "1"),
        (r"a.*:b", 'a"\\:b', "a"),
    ],
)
def test_a_regular_expression_lets_through_the_same_texts_in_json(
    definition: str, right: str, wrong: str | None
) -> None:
    assert check("regex", definition, right)
    assert wrong is None or not check("regex", definition, wrong)


@examples(60)
@given(st.text('*+- @EF:.abc"\\\n\tä', max_size=40))
def test_any_lines_of_a_patch(lines: str) -> None:
    check("lark", PATCH, f"*** Begin\n*** File: {lines}\n*** End")


@pytest.mark.parametrize("definition", ["(a", "a)", "a**", "(?x)a", "a^b"])
def test_what_is_no_regular_expression_is_refused(definition: str) -> None:
    with pytest.raises(ValueError, match="in a regular expression"):
        in_json("regex", definition)


def test_terminals_of_any_lines_are_known() -> None:
    assert may_not_end("start: /(.|\\n)*/") and may_not_end('start: "a" /[^"]+/')
    assert not may_not_end(PATCH) and not may_not_end('start: "\\n<" /[a-z\\n]*/')
