"""A text as an answer, however it is divided: characters, stop strings, thoughts, content, calls and sent tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import BEGIN, END, ByteVocabulary
from gateway.openai_api.answer import THINK, AnswerForm, AnswerReader, Markers, ThoughtReader, markers_of
from gateway.openai_api.detokenizer import Detokenizer, StopStrings
from gateway.openai_api.output import ChoiceText, joined
from gateway.openai_api.texts import NewTokens
from gateway.openai_api.tools.reader import CallBegan, Content, Thought
from gateway.openai_api.tools.styles import Style
from gateway.openai_api.writers import message_of
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.sampling.distribution import TokenLogprobs
from tests.gateway.openai_api.tools.support import pieces


def _characters(ids: list[int]) -> list[str]:
    """The text of each token, then what the whole text has more: an unfinished character."""
    stream = Detokenizer(ByteVocabulary())
    pieces = [stream.feed(token) for token in ids]
    assert stream.text.startswith("".join(pieces))
    return [*pieces, stream.text.removeprefix("".join(pieces))]


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_character_appears_once_with_its_last_token(character: str) -> None:
    ids = list(character.encode())
    assert _characters(ids) == [""] * (len(ids) - 1) + [character, ""]


@given(st.binary())
def test_invalid_utf8_is_replaced_as_python_does(data: bytes) -> None:
    assert "".join(_characters(list(data))) == data.decode(errors="replace")


def test_control_tokens_have_no_text_and_do_not_break_characters() -> None:
    first, second = "é".encode()
    assert _characters([BEGIN, first, second, END]) == ["", "", "é", "", ""]
    assert "".join(_characters([first, END, second])) == "é"


TEXTS = st.text(alphabet="abé", max_size=30)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)


def _fed(text: str, stops: list[str], cuts: list[int]) -> tuple[str, bool]:
    stopper, out = StopStrings(stops), ""
    for piece in pieces(text, cuts):
        out += stopper.feed(piece)
        if stopper.found is not None:
            return out, True
    return out + stopper.end(), False


def _cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the stop string that is complete first, and of these the one that began first."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(TEXTS, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_the_text_ends_before_the_first_stop_string_for_every_division(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    assert _fed(text, stops, cuts) == _cut(text, stops)


@given(TEXTS, STOPS)
def test_what_cannot_begin_a_stop_string_is_not_held_back(text: str, stops: list[str]) -> None:
    if _cut(text, stops)[1]:
        return
    stopper = StopStrings(stops)
    held = text[len(stopper.feed(text)) :]
    assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def divided(markers: Markers, text: str, cuts: list[int], *, begun: bool) -> tuple[str, str, int | None]:
    """The thoughts, what follows them, and how many characters the thoughts have with their markers."""
    reader, thoughts, answer = ThoughtReader(markers, begun=begun), "", ""
    for piece in pieces(text, cuts):
        parts = reader.feed(piece)
        thoughts, answer = thoughts + parts[0], answer + parts[1]
    parts = reader.finish()
    return thoughts + parts[0], answer + parts[1], reader.end


@pytest.mark.parametrize(
    ("text", "begun", "expected"),
    [
        ("<think>\nWhy?\n</think>\n\nSo.", False, ("Why?", "So.")),
        ("\n<think>a  b</think> So. ", False, ("a  b", "So. ")),
        ("Why?\n</think>\n\nSo.", True, ("Why?", "So.")),
        ("<think>\nWhy?\n</think>\n\nSo.", True, ("Why?", "So.")),
        ("</think>So.", True, ("", "So.")),
        ("<think></think>So.", False, ("", "So.")),
        ("So.", False, ("", "So.")),
        ("\n So. <think>x</think>", False, ("", "\n So. <think>x</think>")),
        ("<thin", False, ("", "<thin")),
        ("<thinking>", False, ("", "<thinking>")),
        ("<think>never </thin", False, ("never </thin", "")),
        ("never ended \n", True, ("never ended", "")),
        ("", True, ("", "")),
        ("  ", False, ("", "  ")),
        ("Why?</think>", True, ("Why?", "")),
    ],
)
def test_thoughts_are_divided_from_the_answer(text: str, begun: bool, expected: tuple[str, str]) -> None:
    whole = divided(THINK, text, [], begun=begun)
    assert whole[:2] == expected
    assert divided(THINK, text, [*range(len(text))], begun=begun) == whole


PARTS = st.sampled_from(["<think>", "</think>", "<think", "</", "k>", "a", " ", "\n", "<"])


@given(st.lists(PARTS).map("".join), st.booleans(), st.lists(st.integers(0, 60), max_size=6))
def test_the_division_of_the_text_does_not_matter(text: str, begun: bool, cuts: list[int]) -> None:
    whole = divided(THINK, text, [], begun=begun)
    assert divided(THINK, text, cuts, begun=begun) == whole
    thoughts, answer, end = whole
    assert end is not None and text[end:].endswith(answer) and thoughts == thoughts.strip() and thoughts in text[:end]


@pytest.mark.parametrize(
    ("template", "begin"),
    [
        ("{{ content.split('</think>')[-1] }}", "<think>"),
        ("[THINK]{{ thoughts }}[/THINK]", "[THINK]"),
        ("<|channel>thought\n<channel|>", "<|channel>thought"),
        ("<seed:think>", "<seed:think>"),
        ("<|START_THINKING|>", "<|START_THINKING|>"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>"),
    ],
)
def test_the_template_says_the_markers(template: str, begin: str) -> None:
    assert markers_of(template).begin == begin  # type: ignore[union-attr]


def test_a_template_without_thoughts() -> None:
    assert markers_of(None) is None and markers_of("{{ messages }}") is None


@given(st.lists(st.integers(0, 90), max_size=5))
def test_calls_are_read_behind_the_thoughts_alone(cuts: list[int]) -> None:
    text = f"<think>{CALL}</think>\n{CALL}"
    for apart in (True, False):
        answer = AnswerReader(AnswerForm(THINK, apart=apart, style=Style.HERMES, tools={"f": {}}))
        events = []
        for piece in pieces(text, cuts):
            events += answer.feed(piece)
        events += answer.finish()
        thoughts = "".join(event.text for event in events if isinstance(event, Thought))
        content = "".join(event.text for event in events if isinstance(event, Content))
        assert sum(isinstance(event, CallBegan) for event in events) == 1 and answer.reason("stop") == "tool_calls"
        assert (thoughts, content.strip()) == ((CALL, "") if apart else ("", f"<think>{CALL}</think>"))


PIECES = [bytes([byte]) for byte in range(256)] + [b"<|im_start|>", b"</s>", b"<|im_end|>"]
START, STOP = 256, 258


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
    assert message.tool_calls is not None and message.tool_calls[0].function is not None
    assert message.tool_calls[0].function.name == "f"
    assert output.reasoning_count == (6 if begun else 7) and output.count == len(tokens)
    assert output.reason("stop") == "tool_calls" and output.reason("length") == "length"


def test_an_answer_that_ends_behind_a_call_counts_no_further_token() -> None:
    output = ChoiceText(_Thinking(), [], AnswerForm(style=Style.HERMES, tools={"f": {}}, one_call=True))
    call = [258, *b'{"name": "f", "arguments": {}}', 259]
    delta = output.take(NewTokens([*call, *call]))
    assert output.stopped and output.count <= len(call) and output.reason("stop") == "tool_calls"
    assert len(message_of(delta.events).tool_calls or []) == 1
