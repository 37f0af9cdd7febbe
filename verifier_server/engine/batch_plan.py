"""One forward pass: what it feeds, and whose guesses it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.base import Entry, HeadOf, head_for
from speculation.acceptance.draft_probs import Weights
from verifier_server.engine.requests import Request
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.sessions import Session


@dataclass(slots=True)
class BatchItem:
    """What a pass does for one session. Without a `run` it is a step of the session's own."""

    sequence: SequenceState
    run: Request | None  # the guess whose drafts are run
    requests: list[Request]  # all that are answered with it
    fresh: list[int]  # drafts to judge: those of `run` that go beyond the record, as far as its session's credit goes
    proposals: Sequence[Weights] = ()  # what each was drawn from, or nothing


@dataclass(slots=True)
class BatchPlan:
    """The next pass: `parts[i]` is about `batch[i]`. `room`: tokens that may still be added.

    `even_width`: what the backend says, if it says something. Generated tokens that a row lacks are then read in no
    wider pieces, and apart from the prompt: so they leave in the row what they left when they were decoded, and the
    text goes on as it would have.
    """

    room: int
    even_width: int | None = None
    batch: list[Entry] = field(default_factory=list)
    parts: list[BatchItem] = field(default_factory=list)
    holds_chunk: bool = False  # of a prompt

    @property
    def tokens(self) -> int:
        """How many the pass feeds."""
        return sum(len(entry.tokens) for entry in self.batch)

    def heads(self, vocabulary_size: int) -> list[HeadOf]:
        """What suffices of the rows of each entry to draw the target's own token.

        To weigh drafts (probabilistic, threshold) and to explain takes whole rows. They are fetched then: one for each
        draft that is looked at, where a head of the whole vocabulary would have the device sort every row of them all.
        """
        return [head_for(part.sequence.session.rule.sampling, vocabulary_size) for part in self.parts]

    def add(self, part: BatchItem, most: int) -> int:
        """Feed what the row lacks of the session's tokens, then the drafts; returns the tokens taken, `most` at most.

        What is judged (the last committed token and the drafts) goes whole into one pass: where there is no room for
        it, as much of the rest as there is room for goes alone, and is judged in a later pass.
        """
        session = part.sequence.session
        assert session.row is not None
        feed = session.tokens[session.held :] + part.fresh
        judged_from = len(feed) - len(part.fresh) - 1
        most = min(most, self.room, self._even(session, judged_from) or most)
        if len(feed) > most:
            feed = feed[: min(most, judged_from)]
            judged_from = len(feed)
        if feed:
            self.batch.append(Entry(session.row, session.held, feed, judged_from))
            self.parts.append(part)
            self.room -= len(feed)
        return len(feed)

    def _even(self, session: Session, lacking: int) -> int | None:
        """How many tokens of a session may be read at once for its text's sake; `lacking`: those that go unjudged."""
        if self.even_width is None or not lacking:
            return None
        left = session.prompt_len - session.held
        if left > 0:
            return left if len(session.tokens) > session.prompt_len else None
        return self.even_width
