"""A text in the making: what is known of it, as events."""

import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from backends.vocabulary import Vocabulary
from drafter_client.generation.detokenize import TextStream
from drafter_client.generation.observer import Committed
from drafter_client.generation.text_session import Stop
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from drafter_client.options import Options
from speculation.acceptance.decisions import Decision


class Token(NamedTuple):
    """A token of the text. `text` is what it completes: nothing, while a character is spread over several.

    `source`: as far as it could be told at once; `Stats.sources` counts what turned out. `decision`: why it is there,
    of a text that is to be explained.
    """

    id: int
    text: str
    source: TokenSource
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that are certain now: the `position`-th of the text, its prompt included, and those behind it."""

    position: int
    tokens: list[Token]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. `finish_reason`: "stop" (the model ended the text) or "length"."""

    text: str
    token_ids: list[int]
    finish_reason: str
    stats: Stats


Event = Tokens | Finished


class _Text:
    """What there is of a text so far."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._decoder = TextStream(vocabulary)
        self._pieces: list[str] = []

    def add(self, token: int) -> str:
        """The text that one more token completes."""
        self._pieces.append(self._decoder.feed(token))
        return self._pieces[-1]

    def __str__(self) -> str:
        return "".join(self._pieces) + self._decoder.rest()


class Generation:
    """Events of one text, the last of them `Finished`; read by one thread, and closed by any.

    It ends early when it is closed, or its `with` block left, or nothing refers to it any more.

    `options`    with the seed that was drawn, where none was given
    `prompt_ids` the prompt as the target reads it
    `stats`      filled on the way, complete when it ends, however it ends
    """

    def __init__(
        self,
        run: Generator[Committed, None, None],
        vocabulary: Vocabulary,
        prompt_ids: list[int],
        options: Options,
        stats: Stats,
        stop: Stop | None = None,
    ) -> None:
        """`stop`: ends the waiting of `run` for a verifier that went away, and with it the text."""
        self._stop = stop or Stop()
        self.options, self.prompt_ids, self.stats = options, prompt_ids, stats
        self._text, self._vocabulary = _Text(vocabulary), vocabulary
        # Must not refer to this object: in a circle, neither would end before the garbage collector comes.
        self._events = _follow(run, self._text, len(prompt_ids), stats, self._stop)
        self._stepping = threading.RLock()

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Event:
        with self._stepping:
            return next(self._events)

    def __enter__(self) -> "Generation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it: nothing more is drafted or asked for, and the verifier forgets its session.

        Waits for the step that another thread is at, but not for a verifier that went away.
        """
        self.wait_no_more()
        with self._stepping:
            self._events.close()

    def wait_no_more(self) -> None:
        """If it waits for a verifier that went away, now or later, it ends. From any thread, and at once."""
        self._stop.set()

    def read(self) -> Finished:
        """Wait for the end of the text."""
        for event in self:
            if isinstance(event, Finished):
                return event
        raise RuntimeError("this generation has ended already, and its events were read")

    def piece(self, token: int) -> str:
        """The text of a token by itself; of part of a character, U+FFFD."""
        return self._vocabulary.decode([token]).decode(errors="replace")

    @property
    def text(self) -> str:
        """All of the text so far; a character that it breaks off in is U+FFFD."""
        return str(self._text)


def _follow(
    run: Generator[Committed, None, None], text: _Text, position: int, stats: Stats, stop: Stop
) -> Generator[Event, None, None]:
    with closing(run):  # releases the session, whatever happens
        for committed in run:
            why = iter(committed.decisions or ())
            tokens = [Token(token, text.add(token), source, next(why, None)) for token, source in committed.tokens]
            yield Tokens(position, tokens)
            position += len(committed.tokens)
    if stats.finish_reason is None and stop.is_set():
        return
    assert stats.finish_reason is not None
    yield Finished(str(text), stats.token_ids, stats.finish_reason, stats)
