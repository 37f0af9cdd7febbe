"""Generation: its events concatenate to the text, and its run ends wherever the reader stops."""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ByteVocabulary
from drafter_client import Finished, Generation, Options, Stats, Tokens, TokenSource
from drafter_client.generation.events import Committed
from drafter_client.http.text_session import TextSession

PROMPT = [256, 97]
TEXT = "naïve 日本 😀\n".encode()


class Run:
    """Commits given pieces, and records whether it was begun and ended."""

    def __init__(self, pieces: Sequence[Sequence[int]], fails: Exception | None = None) -> None:
        self.text, self.begun, self.ended = TextSession(PROMPT), False, False
        self._pieces, self._fails = pieces, fails

    def generation(self) -> Generation:
        return Generation(closing(self._run()), ByteVocabulary(), self.text, Options(seed=1), Stats())

    def _run(self) -> Generator[Committed, None, None]:
        self.begun = True
        try:
            for piece in self._pieces:
                position = len(self.text.known)
                self.text.known += piece
                yield Committed(position, [(token, TokenSource.BONUS) for token in piece])
            if self._fails is not None:
                raise self._fails
            self.text.finish_reason = "length"
        finally:
            self.ended = True


@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), max_size=8), whole=st.booleans())
def test_events_concatenate_to_the_text(cuts: list[int], whole: bool) -> None:
    data = TEXT if whole else TEXT[:-3]  # the latter ends within a character
    edges = [0, *sorted(cut for cut in set(cuts) if cut < len(data)), len(data)]
    pieces = [list(data[low:high]) for low, high in pairwise(edges)]
    *before, last = Run(pieces).generation()
    events = [event for event in before if isinstance(event, Tokens)]
    assert isinstance(last, Finished) and events == before
    streamed = "".join(event.text for event in events)
    assert streamed == data.decode(errors="ignore") and last.text == data.decode(errors="replace")
    assert [token.id for event in events for token in event.tokens] == list(data) == last.token_ids
    position = len(PROMPT)
    for event in events:
        assert event.position == position and event.tokens
        position += len(event.tokens)
    assert last.finish_reason == "length"


@pytest.mark.parametrize("way", ["close", "with", "forget", "break"])
def test_leaving_a_text_early_ends_its_run(way: str) -> None:
    run = Run([[97], [98], [99]])
    generation: Generation | None = run.generation()
    assert generation is not None
    if way == "with":
        with generation:
            next(generation)
    elif way == "break":
        for _ in generation:
            break
        generation = None
    else:
        next(generation)
        assert not run.ended
        if way == "close":
            generation.close()
        generation = None
    assert run.ended and run.text.tokens == [97]
    if generation is not None:
        assert list(generation) == [] and generation.text == "a"


def test_read_returns_the_end_also_from_the_middle() -> None:
    generation = Run([[97], [98]]).generation()
    next(generation)
    assert generation.read().text == "ab"
    with pytest.raises(RuntimeError, match="has ended already, and its events were read"):
        generation.read()


def test_error_is_raised_after_the_tokens_before_it() -> None:
    run = Run([[97]], fails=ValueError("odd"))
    generation = run.generation()
    next(generation)
    with pytest.raises(ValueError, match="odd"):
        next(generation)
    assert run.ended and generation.text == "a" and list(generation) == []
