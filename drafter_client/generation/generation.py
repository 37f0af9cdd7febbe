"""`Generation`: an iterator of the events of one text, which are tokens as they are committed, then the end."""

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from drafter_client.generation.events import Committed
from drafter_client.http.text_session import TextSession
from drafter_client.options import Options
from drafter_client.statistics import Stats
from gateway.openai_api.detokenizer import Detokenizer
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.round_counts import draft_sources
from specpair.speculation.acceptance.token_sources import TokenDetails, TokenSource
from specpair.speculation.draft import DraftSource
from specpair.speculation.sampling.distribution import TokenLogprobs


class Token(NamedTuple):
    """A committed token."""

    id: int
    text: str  # the characters that it completes, which may be none
    source: TokenSource
    decision: Decision | None = None  # why it was committed; None without `Options.explain`
    logprobs: TokenLogprobs | None = None  # its own, and those of the likeliest tokens; None without `Options.logprobs`
    draft_source: DraftSource | None = None  # of the draft token accepted or replaced; None: none, or not known


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly committed tokens. `position`: index of the first one in the text, counted from the prompt's first token."""

    position: int
    tokens: list[Token]

    @property
    def text(self) -> str:
        """The text of all of `tokens`."""
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a text.

    `finish_reason`: "stop" (the target or a stop string ended the text) or "length" (a limit did).
    `token_ids`: those of the text, to the one that completed a stop string.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    stats: Stats


Event = Tokens | Finished


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
        run: AbstractContextManager[Iterable[Committed]],
        vocabulary: Vocabulary,
        text: TextSession,
        options: Options,
        stats: Stats,
        shown: Sequence[str] = (),
        *,
        decoded: bool = True,
    ) -> None:
        """`run`: a context of what generates `text`, whose `stop` ends it if it waits for a lost verifier, and whose
        listeners fill `stats`. `shown`, `decoded`: see `Pair.generate`."""
        self._stop, self._vocabulary = text.stop, vocabulary
        self.options, self.prompt_ids, self.stats = options, text.prompt_ids, stats
        self._characters = Detokenizer(vocabulary, options.stop, shown) if decoded else None
        # The generator must not refer to this object: a reference cycle would live until the garbage collector runs.
        self._events = _follow(run, self._characters, text, stats)
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the text: nothing more is drafted or requested, and the verifier releases the session.

        The request of another thread that is reading an event is aborted; a draft step under way there is waited for.
        """
        self._closing = True
        self.wait_no_more()
        with self._stepping:
            self._events.close()

    def wait_no_more(self) -> None:
        """End the text, and abort the request that is under way. May be called from any thread; returns at once."""
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
        return "" if self._characters is None else self._characters.text


def _follow(
    writing: AbstractContextManager[Iterable[Committed]],
    characters: Detokenizer | None,
    text: TextSession,
    stats: Stats,
) -> Generator[Event, None, None]:
    """Yield the events of a run; no `Finished` if `text.stop` ended the text."""
    with writing as run:  # releases the session in every case
        for committed in run:
            details = committed.details or TokenDetails([])
            decisions, logprobs = iter(details.decisions or ()), iter(details.logprobs or ())
            drafted = draft_sources([source for _, source in committed.tokens], committed.rounds)
            tokens = []
            for (token, source), draft in zip(committed.tokens, drafted, strict=True):
                piece = "" if characters is None else characters.feed(token)
                if stats.looks_up and draft is DraftSource.MODEL:  # the drafter is a lookup
                    draft = DraftSource.LOOKUP
                tokens.append(Token(token, piece, source, next(decisions, None), next(logprobs, None), draft))
                if characters is not None and characters.stopped:
                    text.stopped_at = committed.position + len(tokens) - len(text.prompt_ids)
                    break
            yield Tokens(committed.position, tokens)
            if text.stopped_at is not None:
                break
    reason = text.finish_reason if text.stopped_at is None else "stop"
    if reason is not None or not text.stop.is_set():
        assert reason is not None
        yield Finished("" if characters is None else characters.text, text.tokens[: text.stopped_at], reason, stats)
