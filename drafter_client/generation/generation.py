"""`Generation`: an iterator of the events of one text, which are tokens as they are committed, then the end."""

import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from backends.vocabulary import Vocabulary
from drafter_client.generation.detokenize import TextStream
from drafter_client.generation.observer import Committed
from drafter_client.http.stop import Stop
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from drafter_client.options import Options
from speculation.acceptance.explain import Decision


class Token(NamedTuple):
    """A committed token. `text`: the characters that it completes, which may be none.

    `source`: the token source as known when the token was committed; `Stats.sources` counts the final sources.
    `decision`: why the token was committed; None without `Options.explain`.
    """

    id: int
    text: str
    source: TokenSource
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly committed tokens. `position`: index of the first one in the text, counted from the prompt's first token."""

    position: int
    tokens: list[Token]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a text. `finish_reason`: "stop" (the target ended the text) or "length" (a limit did)."""

    text: str
    token_ids: list[int]
    finish_reason: str
    stats: Stats


Event = Tokens | Finished


class _Text:
    """The generated text so far."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._decoder = TextStream(vocabulary)
        self._pieces: list[str] = []

    def add(self, token: int) -> str:
        """Append a token and return the text that it completes."""
        self._pieces.append(self._decoder.feed(token))
        return self._pieces[-1]

    def __str__(self) -> str:
        return "".join(self._pieces) + self._decoder.rest()


class Generation:
    """Iterator of the events of one text, the last of them `Finished`. One thread reads it; any thread may close it.

    The text ends early when the generation is closed, when its `with` block is left, or when nothing refers to it any
    more.

    `options`    options of the text, with the drawn seed if none was given
    `prompt_ids` token ids of the prompt, as the target reads it
    `stats`      statistics of the text: filled on the way, complete at the end, even if the text ends early or fails
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
        """`run`: generates the text and fills `stats`. `stop`: setting it ends the text if `run` waits for a lost
        verifier."""
        self._stop = stop or Stop()
        self.options, self.prompt_ids, self.stats = options, prompt_ids, stats
        self._text, self._vocabulary = _Text(vocabulary), vocabulary
        # The generator must not refer to this object: a reference cycle would live until the garbage collector runs.
        self._events = _follow(run, self._text, len(prompt_ids), stats, self._stop)
        self._stepping = threading.RLock()
        self._closing = False

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Event:
        with self._stepping:
            if self._closing:  # a reader that takes the lock again before `close` has it does not continue the text
                self._events.close()
            return next(self._events)

    def __enter__(self) -> "Generation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the text: nothing more is drafted or requested, and the verifier releases the session.

        Waits for another thread that is reading an event, but not for a lost verifier.
        """
        self._closing = True
        self.wait_no_more()
        with self._stepping:
            self._events.close()

    def wait_no_more(self) -> None:
        """End the text if it waits for a lost verifier, now or later. May be called from any thread; returns at
        once."""
        self._stop.set()

    def read(self) -> Finished:
        """Read all events and return the last one. Raises RuntimeError if they were read before."""
        for event in self:
            if isinstance(event, Finished):
                return event
        raise RuntimeError("this generation has ended already, and its events were read")

    def piece(self, token: int) -> str:
        """Return the text of one token by itself; U+FFFD if it is only a part of a character."""
        return self._vocabulary.decode([token]).decode(errors="replace")

    @property
    def text(self) -> str:
        """The generated text so far; an unfinished character at its end is U+FFFD."""
        return str(self._text)


def _follow(
    run: Generator[Committed, None, None], text: _Text, position: int, stats: Stats, stop: Stop
) -> Generator[Event, None, None]:
    """Yield the events of `run`, whose first token is at `position`; no `Finished` if `stop` ended the text."""
    with closing(run):  # releases the session in every case
        for committed in run:
            decisions = iter(committed.decisions or ())
            tokens = [
                Token(token, text.add(token), source, next(decisions, None)) for token, source in committed.tokens
            ]
            yield Tokens(position, tokens)
            position += len(committed.tokens)
    if stats.finish_reason is None and stop.is_set():
        return
    assert stats.finish_reason is not None
    yield Finished(str(text), stats.token_ids, stats.finish_reason, stats)
