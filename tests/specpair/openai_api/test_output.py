"""The text of a choice: a control token that a stop string names ends it, and is not shown."""

import pytest

from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.openai_api.output import Output, joined
from specpair.openai_api.texts import Piece
from specpair.speculation.sampling.logprobs import TokenLogprobs

PIECES = [bytes([byte]) for byte in range(256)] + [b"<|im_start|>", b"</s>", b"<|im_end|>"]
START, END, STOP = range(256, 259)


class _Vocabulary(Vocabulary):
    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        raise NotImplementedError


VOCABULARY = _Vocabulary(PIECES, [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 3, None, frozenset({END}))


def _text(tokens: list[int], stops: list[str], at_once: int = 100) -> tuple[str, bool, int, list[int]]:
    """The text, whether it was stopped, how many tokens were counted, and the tokens that were sent."""
    output, parts = Output(VOCABULARY, stops), []
    for at in range(0, len(tokens), at_once):
        if not output.stopped:
            given = tokens[at : at + at_once]
            parts.append(output.take(Piece(given, [TokenLogprobs(token, 0.0, []) for token in given])))
    whole = joined([*parts, output.end()])
    return whole.text, output.stopped, output.count, [token.id for token in whole.tokens]


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (["<|im_start|>"], ("ab", True, 3, [*b"ab"])),
        (["<|im_end|>"], ("abcd", True, 6, [*b"ab", START, *b"cd"])),
        (["<|im_end|>", "<|im_start|>"], ("ab", True, 3, [*b"ab"])),
        (["bx", "<|im_start|>"], ("ab", True, 3, [*b"ab"])),  # b was held back
        (["a", "<|im_start|>"], ("", True, 1, [])),
        (["bc"], ("a", True, 4, [*b"a"])),  # a control token that nobody named has no characters
        (["<|im_"], ("abcde", False, 7, [*b"ab", START, *b"cd", STOP, *b"e"])),
        ([], ("abcde", False, 7, [*b"ab", START, *b"cd", STOP, *b"e"])),
    ],
)
def test_a_named_control_token_ends_the_text(
    stops: list[str], expected: tuple[str, bool, int, list[int]], at_once: int
) -> None:
    assert _text([*b"ab", START, *b"cd", STOP, *b"e"], stops, at_once) == expected


def test_text_that_spells_a_control_token_ends_the_text_too() -> None:
    assert _text([*b"a<|im_start|>b"], ["<|im_start|>"])[:2] == ("a", True)


def test_an_end_token_that_is_named_is_no_other_end() -> None:
    assert _text([*b"a", END], ["</s>"]) == ("a", True, 2, [*b"a"])
