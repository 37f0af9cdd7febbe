"""The text of one choice as it grows: characters of the tokens, cut at a stop string, with log probabilities, and as
an answer."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.openai_api.answer import PLAIN, AnswerForm, AnswerReader, AnswerReason
from gateway.openai_api.detokenizer import Detokenizer
from gateway.openai_api.texts import NewTokens
from gateway.openai_api.tools.reader import AnswerEvent
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.response_fields import FinishReason
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.draft import DraftSource
from specpair.speculation.sampling.distribution import TokenLogprobs


class TokenPart(NamedTuple):
    """A token of the text that is sent, with what `NewTokens` says of it."""

    id: int
    begin: int  # characters of the text before it
    end: int  # characters of the text with it
    logprob: TokenLogprobs | None
    source: TokenSource | None = None
    decision: Decision | None = None
    drafted: DraftSource | None = None
    text: str = ""  # its characters, those of thoughts and calls as the model wrote them


@dataclass(frozen=True, slots=True)
class Delta:
    """A new part of a text. `tokens`: those that it completes. `events`: the part as an answer."""

    text: str = ""
    tokens: list[TokenPart] = field(default_factory=list)
    events: list[AnswerEvent] = field(default_factory=list)


def joined(deltas: Sequence[Delta]) -> Delta:
    """The deltas, joined to one."""
    return Delta(
        "".join(each.text for each in deltas),
        [token for each in deltas for token in each.tokens],
        [event for each in deltas for event in each.events],
    )


class ChoiceText:
    """The text of one choice.

    `stopped` says whether a stop string or the form of the answer has ended it, `count` how many tokens it has, the one
    that ended it included, `reasoning_count` how many of them are thoughts.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str], form: AnswerForm = PLAIN) -> None:
        """`form`: how the text is read as an answer."""
        self.count = self.reasoning_count = 0
        self._ends = vocabulary.ends
        self._text = Detokenizer(vocabulary, stops, form.shown)
        self._answer = AnswerReader(form)
        self._unsure: list[int] = []  # where tokens begin that may be thoughts
        self._sent = 0  # characters
        self._waiting: deque[TokenPart] = deque()  # tokens with characters that were not sent yet
        self._untold = ""  # characters of these, as far as they were sent

    @property
    def stopped(self) -> bool:
        return self._text.stopped or self._answer.ended

    def reason(self, reason: FinishReason) -> AnswerReason:
        """Why the text has ended. `reason`: why its last token was the last, if nothing here has stopped it."""
        return self._answer.reason("stop" if self.stopped else reason)

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended it."""
        return self._text.stop_string

    def take(self, piece: NewTokens) -> Delta:
        """Take in new tokens; those after the one that stopped the text are dropped."""
        text, events = "", list[AnswerEvent]()
        for token, *about in zip(piece.tokens, *piece.about, strict=True):
            self.count += 1
            begin = self._text.decoded
            grown = self._text.feed(token)
            if token not in self._ends:
                self._waiting.append(TokenPart(token, begin, self._text.decoded, *about))
            events += self._answer.feed(grown)
            text += grown
            if self.stopped:
                events += self._answer.finish()
                break
        return self._delta(text, events)

    def end(self) -> Delta:
        """Take in the end of the text. An unfinished character becomes U+FFFD."""
        if self.stopped:
            return Delta()
        text = self._text.end()
        return self._delta(text, [*self._answer.feed(text), *self._answer.finish()])

    def _delta(self, text: str, events: list[AnswerEvent]) -> Delta:
        self._sent += len(text)
        self._untold += text
        tokens = []
        while self._waiting and (
            self._waiting[0].begin < self._sent if self.stopped else self._waiting[0].end <= self._sent
        ):
            token = self._waiting.popleft()
            length = token.end - token.begin
            tokens.append(token._replace(text=self._untold[:length]))
            self._untold = self._untold[length:]
        self._count_thoughts(tokens)
        return Delta(text, tokens, events)

    def _count_thoughts(self, tokens: Sequence[TokenPart]) -> None:
        self._unsure += [token.begin for token in tokens]
        thoughts = [self._answer.thinks_at(begin) for begin in self._unsure]
        self.reasoning_count += thoughts.count(True)
        self._unsure = [begin for begin, thinks in zip(self._unsure, thoughts, strict=True) if thinks is None]
