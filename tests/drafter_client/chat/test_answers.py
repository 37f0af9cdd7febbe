"""Answers as they come, and on a terminal in memory: thoughts, blocks of Markdown, each part of the text once."""

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from backends.scripted import ByteVocabulary
from drafter_client.chat.answer_view import AnswerPart, AnswerText, AnswerView, begins_thoughts
from drafter_client.chat.markdown import BlockSplitter, rendered
from drafter_client.generation.generation import Token
from gateway.openai_api.answer import THINK
from specpair.speculation.acceptance.token_sources import TokenSource
from tests.terminal.screen import Screen

ANSWERS = st.sampled_from(["<think>a b</think>\n\nc", "<think>a b</think>c", "\n<think>\na b\n</think>\n\nc"])


def _read(answer: AnswerText, text: str, sizes: list[int], late: int = 0) -> None:
    """Read a text in pieces; the last `late` characters come with no token."""
    sent, at = text[: len(text) - late], 0
    for size in [*sizes, len(text)]:
        answer.take([Token(0, sent[at : at + size], TokenSource.BONUS)])
        at += size
    answer.finish(text)


@given(text=ANSWERS, sizes=st.lists(st.integers(0, 5)), late=st.integers(0, 3))
def test_thoughts_come_apart_whatever_the_pieces(text: str, sizes: list[int], late: int) -> None:
    answer = AnswerText(THINK, begun=False)
    _read(answer, text, sizes, late)
    assert (answer.thoughts, answer.said) == ("a b", "c")


@given(text=st.text(), sizes=st.lists(st.integers(0, 5)))
def test_other_texts_are_said_as_they_are(text: str, sizes: list[int]) -> None:
    answer = AnswerText(THINK, begun=False)
    _read(answer, "x" + text, sizes)
    assert (answer.thoughts, answer.said) == ("", "x" + text)


def test_the_end_of_a_prompt_tells_whether_thoughts_are_begun() -> None:
    vocabulary = ByteVocabulary()
    for prompt, begun in ("assistant:<think>\n", True), ("assistant:<think></think>", False), ("assistant:", False):
        assert begins_thoughts(vocabulary.encode(prompt), vocabulary, THINK) is begun


PLAIN = ["", " ", "word", "> quote", "---", "  more", "\tmore", "    code", "é 🙂"]
MARKED = ["# head", "####### none", "- item", "2. item", "```", "```py", "~~~", "   ````", "``` a`b"]
LINE = st.sampled_from(PLAIN + MARKED)
MARKDOWN = st.lists(LINE, max_size=24).map("\n".join) | st.text("ab \n`~#-*1.\t", max_size=60)


def blocks_of(*pieces: str) -> list[str]:
    splitter = BlockSplitter()
    return [block for piece in pieces for block in splitter.feed(piece)] + splitter.finish()


@given(text=MARKDOWN, cuts=st.lists(st.integers(0, 80), max_size=8))
def test_blocks_are_the_same_for_any_pieces_and_nothing_is_lost(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(edges)]
    blocks, splitter, done = blocks_of(text), BlockSplitter(), ""
    assert blocks_of(*pieces) == blocks_of(*text) == blocks
    assert "".join(blocks) == text
    for at, piece in enumerate(pieces):
        done += "".join(splitter.feed(piece))
        assert done + splitter.open == "".join(pieces[: at + 1])


WIDTH = 24
LINES = [
    "",
    "some words that need more than one row",
    "# head",
    "- item",
    "  goes on",
    "```",
    "x = 1",
    "> said",
    "日本語 🙂",
]
TEXTS = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _View:
    """A view on a terminal, and what that shows."""

    def __init__(
        self, *, width: int = WIDTH, height: int = 100, dumb: bool = False, piped: bool = False, **how: bool
    ) -> None:
        file = io.StringIO() if piped else _Terminal()
        environment = {"TERM": "dumb" if dumb else "xterm"}
        self.out = Console(
            file=file,
            width=width,
            height=height,
            force_terminal=not piped,
            markup=False,
            highlight=False,
            _environ=environment,
        )
        notes = Console(file=io.StringIO(), stderr=True)
        self.view = AnswerView(self.out, notes, **{"markdown": True, "sources": False} | how)
        self._file = file

    def add(self, *pieces: str, thought: bool = False) -> None:
        for piece in pieces:
            self.view.add([AnswerPart(piece, thought, TokenSource.ACCEPTED)], 1)

    @property
    def written(self) -> str:
        return self._file.getvalue()

    def lines(self, rows: int = 100) -> list[str]:
        screen = Screen(self.out.width, rows)
        screen.feed(self.written)
        return screen.lines


def _answer(*pieces: str, **how: int) -> _View:
    shown = _View(**how)  # type: ignore[arg-type]
    shown.add(*pieces)
    shown.view.close()
    return shown


def _as_markdown(text: str) -> list[str]:
    """What the screen must show."""
    splitter, console = BlockSplitter(), Console(width=WIDTH, file=io.StringIO(), _environ={})
    lines: list[str] = []
    for block in [*splitter.feed(text), *splitter.finish()]:
        found = [line.plain for line in rendered(block, console)]
        lines += [*found, ""] if found else []
    while lines and not lines[-1]:
        lines.pop()
    return lines


@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_the_screen_shows_the_blocks_whatever_the_pieces(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(edges)]
    expected = _as_markdown(text)
    assert _answer(*pieces).lines() == expected
    assert _answer(*text).lines() == expected


@pytest.mark.parametrize("width", [12, 24, 80])
def test_a_block_higher_than_the_screen_stays_as_it_was_written(width: int) -> None:
    words = [f"w{number}" for number in range(60)]
    text = f"**first**\n\n{' '.join(words)}\n# head\nlast *word*"
    lines = _answer(*text, width=width, height=4).lines(4)
    assert " ".join(lines).split() == ["first", *words, "head", "last", "word"]


def test_a_block_during_which_the_terminal_got_another_size_stays_as_it_was_written() -> None:
    shown = _View()
    shown.add("*one*\n\n", "*two* three ")
    shown.out.width = 40
    shown.add("four\n\n", "*five*\n")
    shown.view.close()
    words = " ".join(shown.lines()).split()
    assert words == ["one", "*two*", "three", "four", "five"]


def test_control_characters_of_a_model_are_escaped_and_its_html_and_links_are_shown() -> None:
    shown = _answer("\x1b]0;title\x07 <b>x</b> [here](http://example.com)\n\n<div>\n\n[1]: http://other", width=80)
    text = " ".join(shown.lines())
    assert r"\x1b]0;title\x07 <b>x</b> here (http://example.com)" in text
    assert "<div>" in text and "http://other" in text and "\x1b]" not in shown.written


def test_line_breaks_in_a_paragraph_stay() -> None:
    assert _answer("one\ntwo\n\n- three\n  four").lines() == ["one", "two", "", " • three", "   four"]


def test_without_markdown_the_text_is_as_it_was_written() -> None:
    assert _answer("*one* ", "two\n", markdown=False).lines() == ["*one* two"]
    shown = _answer("*one* ", "two\n", sources=True)
    assert shown.lines() == ["*one* two"] and "\x1b[32m*one* " in shown.written


def test_a_dumb_terminal_gets_no_control_codes() -> None:
    assert _answer("*one*\n\n", "two\x1b", dumb=True).written == "*one*\n\ntwo\\x1b\n\n"
    assert _answer("*one*\n\n", "two", dumb=True, sources=True).written == "*one*\n\ntwo\n\n"


def test_a_pipe_gets_the_text_unchanged() -> None:
    assert _answer("*one*\r\n\n", "two\x1b", piped=True).written == "*one*\r\n\ntwo\x1b\n\n"


def test_thoughts_are_dim_and_no_part_of_the_answer() -> None:
    for how, answer in ({}, "two"), ({"sources": True}, "*two*"):
        shown = _View(**how)
        shown.add("*on", "e*", thought=True)
        shown.add("*tw", "o*")
        shown.view.close()
        assert shown.lines() == ["thoughts: *one*", "", answer]
        assert "\x1b[2mthoughts: *on" in shown.written
    piped = _View(piped=True)
    piped.add("one", thought=True)
    piped.add("two")
    piped.view.close()
    assert piped.written == "two\n\n"


@given(
    blocks=st.lists(
        st.sampled_from(["some words that need two rows", "# head", "- one\n- two", "```\nx\n```"]), max_size=9
    )
)
def test_blocks_scroll_away_whole(blocks: list[str]) -> None:
    text = "\n\n".join(blocks)
    assert _answer(*text, height=8).lines(8) == _as_markdown(text)
