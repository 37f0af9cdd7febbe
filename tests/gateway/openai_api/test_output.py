"""The text of a choice: a control token that a stop string names ends it, and is not shown."""

import pytest

from gateway.openai_api.answer import THINK, AnswerForm
from gateway.openai_api.output import ChoiceText, joined
from gateway.openai_api.texts import NewTokens
from gateway.openai_api.tools.styles import Style
from gateway.openai_api.writers import message_of
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.sampling.distribution import TokenLogprobs

PIECES = [bytes([byte]) for byte in range(256)] + [b"<|im_start|>", b"</s>", b"<|im_end|>"]
START, END, STOP = range(256, 259)


class _Vocabulary(Vocabulary):
    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        raise NotImplementedError


VOCABULARY = _Vocabulary(PIECES, [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 3, None, frozenset({END}))


def _text(tokens: list[int], stops: list[str], at_once: int = 100) -> tuple[str, bool, int, list[int]]:
    """The text, whether it was stopped, how many tokens were counted, and the tokens that were sent."""
    output, parts = ChoiceText(VOCABULARY, stops), []
    for at in range(0, len(tokens), at_once):
        if not output.stopped:
            given = tokens[at : at + at_once]
            parts.append(output.take(NewTokens(given, [TokenLogprobs(token, 0.0, []) for token in given])))
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


class _Thinking(_Vocabulary):
    def __init__(self) -> None:
        names = [b"<think>", b"</think>", b"<tool_call>", b"</tool_call>", b"</s>"]
        kinds = [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 5
        super().__init__([*PIECES[:256], *names], kinds, None, frozenset({260}))


@pytest.mark.parametrize("at_once", [1, 3, 200])
@pytest.mark.parametrize("begun", [False, True])
def test_control_tokens_that_mark_thoughts_and_calls_are_read(at_once: int, begun: bool) -> None:
    form = AnswerForm(THINK, begun=begun, style=Style.HERMES, tools={"f": {}})
    output = ChoiceText(_Thinking(), [], form)
    tokens = [*([] if begun else [256]), *b"Why?\n", 257, *b"\nSo.", 258, *b'{"name": "f", "arguments": {}}', 259, 260]
    deltas = [output.take(NewTokens(tokens[at : at + at_once])) for at in range(0, len(tokens), at_once)]
    whole = joined([*deltas, output.end()])
    message = message_of(whole.events)
    assert (message.reasoning_content, message.content) == ("Why?", "So.")
    assert message.tool_calls is not None and message.tool_calls[0].function.name == "f"
    assert output.reasoning_count == (6 if begun else 7) and output.count == len(tokens)
    assert output.reason("stop") == "tool_calls" and output.reason("length") == "length"


def test_an_answer_that_ends_behind_a_call_counts_no_further_token() -> None:
    output = ChoiceText(_Thinking(), [], AnswerForm(style=Style.HERMES, tools={"f": {}}, one_call=True))
    call = [258, *b'{"name": "f", "arguments": {}}', 259]
    delta = output.take(NewTokens([*call, *call]))
    assert output.stopped and output.count <= len(call) and output.reason("stop") == "tool_calls"
    assert len(message_of(delta.events).tool_calls or []) == 1
