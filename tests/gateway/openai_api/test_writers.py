"""Log probabilities of completions: every token that was asked for has a key of its own, and the drawn one is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.messages.replies import CompletionLogprobs
from gateway.openai_api.output import TokenPart
from gateway.openai_api.writers import completion_logprobs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.speculation.sampling.distribution import TokenLogprobs

PIECES = [
    b"a",
    b"\xc3",
    b"\xa4",
    b"\xe4\xbd",
    b" \xf0\x9f",
    b"a",
    b"",
    b"<|x|>",
    "ä".encode(),
    b"bytes:\\xc3",
    b"\xff\n",
]


class _Vocabulary(Vocabulary):
    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        raise NotImplementedError


VOCABULARY = _Vocabulary(PIECES, [Kind.ORDINARY] * len(PIECES), None, frozenset())
IDS = st.sampled_from(range(len(PIECES)))


def _logprobs(drawn: int, *top: int) -> CompletionLogprobs:
    found = TokenLogprobs(drawn, -float(drawn), [(token, -float(token)) for token in top])
    return completion_logprobs(VOCABULARY, [TokenPart(drawn, 0, 1, found)])


@given(IDS, st.lists(IDS, max_size=len(PIECES) + 2, unique=True))
def test_no_token_is_lost_and_the_drawn_one_is_among_them(drawn: int, top: list[int]) -> None:
    logprobs = _logprobs(drawn, *top)
    (name,), (by_name,) = logprobs.tokens, logprobs.top_logprobs
    assert sorted(by_name.values()) == sorted({-float(token) for token in (drawn, *top)})
    assert by_name[name] == -float(drawn) == logprobs.token_logprobs[0]


@pytest.mark.parametrize(
    ("token", "name"),
    [(0, "a"), (1, r"bytes:\xc3"), (3, r"bytes:\xe4\xbd"), (4, r"bytes: \xf0\x9f"), (8, "ä"), (10, r"bytes:\xff\x0a")],
)
def test_parts_of_characters_are_named_by_their_bytes(token: int, name: str) -> None:
    assert _logprobs(token).tokens == [name] == list(_logprobs(token).top_logprobs[0])


def test_a_name_that_is_taken_becomes_the_id() -> None:
    assert list(_logprobs(5, 0, 1).top_logprobs[0]) == ["token_id:0", r"bytes:\xc3", "a"]
    assert _logprobs(6).tokens == ["token_id:6"]
