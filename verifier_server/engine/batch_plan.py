"""One forward pass of the target: which tokens it feeds, and which requests it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.base import Entry, TopLogitsSpec, top_logits_spec
from speculation.acceptance.draft_probs import Weights
from verifier_server.engine.requests import Request
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.engine.slots import Slot
from verifier_server.sessions import Session


@dataclass(slots=True)
class BatchItem:
    """What a pass does for one session, whose waiting requests it may answer. The backend gets its `Entry` only."""

    sequence: SequenceState
    run: Request | None  # the request whose draft tokens are judged; None: a self-continuation step
    requests: list[Request]  # all requests that the pass answers, `run` included
    fresh: list[int]  # new draft tokens of `run` to judge, as many as the draft credit allows

    @property
    def proposals(self) -> Sequence[Weights]:
        """The distribution that each of `fresh` was drawn from; empty if not sent."""
        return () if self.run is None else self.run.proposals[: len(self.fresh)]


@dataclass(slots=True)
class BatchPlan:
    """The next pass: `parts[i]` says what `batch[i]` is for. `room`: tokens that may still be added.

    `even_width`: the backend's, in tokens, or None. If given, generated tokens that a slot lacks are fed in pieces no
    wider than this, and apart from the prompt. So the slot holds the same KV entries as when these tokens were decoded,
    and the text continues as it would have.
    """

    room: int
    even_width: int | None = None
    batch: list[Entry] = field(default_factory=list)
    parts: list[BatchItem] = field(default_factory=list)
    holds_chunk: bool = False  # whether the pass prefills part of a prompt

    @property
    def tokens(self) -> int:
        """How many tokens the pass feeds."""
        return sum(len(entry.tokens) for entry in self.batch)

    def top_logits_specs(self, vocabulary_size: int) -> list[TopLogitsSpec]:
        """For each entry: which top logits of its rows suffice to sample the target's token.

        The strategies probabilistic and threshold, and explained decisions, need whole rows. These are fetched later,
        one for each draft token that is judged. Top logits as large as the vocabulary would make the device sort every
        row.
        """
        return [top_logits_spec(part.sequence.session.rule.sampling, vocabulary_size) for part in self.parts]

    def add(self, part: BatchItem, slot: Slot, most: int) -> int:
        """Feed the tokens that the session's `slot` lacks, then the draft tokens, at most `most` in all.

        Returns how many tokens it fed. What is judged (the last committed token and the draft tokens) goes into one
        pass as a whole. If there is no room for it, as many of the other tokens as fit are fed, and it is judged in a
        later pass.
        """
        session = part.sequence.session
        feed = session.tokens[slot.held :] + part.fresh
        judged_from = len(feed) - len(part.fresh) - 1
        most = min(most, self.room, self._piece(session, slot.held, judged_from) or most)
        if len(feed) > most:
            feed = feed[: min(most, judged_from)]
            judged_from = len(feed)
        if feed:
            self.batch.append(Entry(slot.number, slot.held, feed, judged_from))
            self.parts.append(part)
            self.room -= len(feed)
        return len(feed)

    def _piece(self, session: Session, held: int, unjudged: int) -> int | None:
        """How many tokens of a session may be fed at once under `even_width`; None: any number.

        `held`: tokens in its slot. `unjudged`: uncached tokens before the one that is judged.
        """
        if self.even_width is None or not unjudged:
            return None
        left = session.prompt_len - held
        if left > 0:
            return left if len(session.tokens) > session.prompt_len else None
        return self.even_width
