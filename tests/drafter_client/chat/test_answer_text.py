"""Thoughts of an answer, told apart from what is said, whatever the tokens."""

from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ByteVocabulary
from drafter_client.chat.answer_view import AnswerText, begins_thoughts
from drafter_client.generation.generation import Token
from gateway.openai_api.answer import THINK
from specpair.speculation.acceptance.token_details import TokenSource

TEXTS = st.sampled_from(["<think>a b</think>\n\nc", "<think>a b</think>c", "\n<think>\na b\n</think>\n\nc"])


def _read(answer: AnswerText, text: str, sizes: list[int], late: int = 0) -> None:
    """Read a text in pieces; the last `late` characters come with no token."""
    sent, at = text[: len(text) - late], 0
    for size in [*sizes, len(text)]:
        answer.take([Token(0, sent[at : at + size], TokenSource.BONUS)])
        at += size
    answer.finish(text)


@given(text=TEXTS, sizes=st.lists(st.integers(0, 5)), late=st.integers(0, 3))
def test_thoughts_come_apart_whatever_the_pieces(text: str, sizes: list[int], late: int) -> None:
    answer = AnswerText(THINK, begun=False)
    _read(answer, text, sizes, late)
    assert (answer.thoughts, answer.said) == ("a b", "c")


@given(sizes=st.lists(st.integers(0, 5)))
def test_a_prompt_may_have_begun_the_thoughts(sizes: list[int]) -> None:
    answer = AnswerText(THINK, begun=True)
    _read(answer, "a b</think>c", sizes)
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
