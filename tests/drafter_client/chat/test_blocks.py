"""Answers as they come: thoughts and what is said, and blocks of Markdown."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ByteVocabulary
from drafter_client.chat.answer_view import AnswerText, begins_thoughts
from drafter_client.chat.markdown import BlockSplitter
from drafter_client.generation.generation import Token
from gateway.openai_api.answer import THINK
from specpair.speculation.acceptance.token_details import TokenSource

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
LINES = st.sampled_from(PLAIN + MARKED)
TEXTS = st.lists(LINES, max_size=24).map("\n".join) | st.text("ab \n`~#-*1.\t", max_size=60)


def blocks_of(*pieces: str) -> list[str]:
    splitter = BlockSplitter()
    return [block for piece in pieces for block in splitter.feed(piece)] + splitter.finish()


@given(text=TEXTS, cuts=st.lists(st.integers(0, 80), max_size=8))
def test_blocks_are_the_same_for_any_pieces_and_nothing_is_lost(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(edges)]
    blocks, splitter, done = blocks_of(text), BlockSplitter(), ""
    assert blocks_of(*pieces) == blocks_of(*text) == blocks
    assert "".join(blocks) == text
    for at, piece in enumerate(pieces):
        done += "".join(splitter.feed(piece))
        assert done + splitter.open == "".join(pieces[: at + 1])


@pytest.mark.parametrize(
    "blocks",
    [
        ["one\ntwo\n\n", "three\n"],
        ["text\n", "# head\n", "text\n\n", "\n\nmore"],
        ["text\n", "```py\nx = 1\n\n# no head\n```\n", "text"],
        ["~~~\n```\n~~~\n", "text"],
        ["- one\n- two\n\n", "text"],
        ["- one\n\n  more of it\n\n      code\n\n", "- two\n"],
        ["1. one\n   ```\n\n   x\n   ```\n\n", "2. two"],
        ["- one\n", "```\nx\n```\n"],
        ["- one\n", "# head\n", "text"],
        ["a ``` b\n``` c`d\n\n", "text"],
        ["    ```\n\n", "text"],
        ["| a |\n|---|\n| 1 |\n\n", "text"],
        ["```\nnever closed\n\nmore"],
        ["\n\n"],
    ],
)
def test_where_blocks_end(blocks: list[str]) -> None:
    assert blocks_of("".join(blocks)) == blocks
