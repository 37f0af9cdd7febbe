"""The draft loop: draft, verify, commit, again; as a generator of what was committed.

In lockstep: one guess at a time. A guess always starts at the last position that is known to be committed.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from drafter_client.client import Verdict, VerifierClient
from drafter_client.drafter import Draft, Drafter
from drafter_client.errors import DrafterError
from drafter_client.stats import Stats
from speculation.acceptance import common_prefix
from speculation.draft_length import DraftLength, Round
from speculation.errors import SpecPairError


class Origin(Enum):
    """Where a committed token came from."""

    ACCEPTED = "accepted"  # drafted here, and the target agreed
    CORRECTION = "correction"  # the target's own, in place of a draft that fell
    FREE = "free"  # the target's own, where no draft was in the way


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that are certain, in order, each with its origin."""

    tokens: list[tuple[int, Origin]]


def speculate(
    client: VerifierClient,
    drafter: Drafter,
    draft_length: DraftLength,
    prompt_ids: list[int],
    options: dict[str, Any],
    max_drafts: int,
    stats: Stats,
    clock: Callable[[], float],
) -> Generator[Committed, None, None]:
    """Generate with one session, which is released at the end, also when the caller stops early.

    `options` are the prefill's (max_tokens, temperature, …). `clock` is in seconds. `stats` is filled on the way.
    """
    began = clock()
    sent_before, received_before = client.transport.sent, client.transport.received
    opened = client.prefill(prompt_ids, options)
    try:
        tokens = opened.prompt_ids + opened.tokens
        stats.opened(opened, clock() - began)
        yield Committed([(token, Origin.FREE) for token in opened.tokens])
        limit = len(opened.prompt_ids) + options["max_tokens"] if options.get("max_tokens") else None
        finish_reason = opened.finish_reason
        while finish_reason is None:
            # The last token before the limit is the target's own: nothing is drafted for its place.
            room = max_drafts if limit is None else min(max_drafts, limit - len(tokens) - 1)
            asked = _Asked(draft_length, room, clock)
            round_began = clock()
            drafts = drafter.draft(tokens, asked)
            sent = draft_length.to_send([draft.confidence for draft in drafts])
            sent_at = clock()
            guess = [draft.token for draft in drafts[:sent]]
            verdict = client.verify(opened.session_id, len(tokens), guess)
            answered = clock()
            first_at = asked.times[1] if len(asked.times) > 1 else sent_at
            outcome = _outcome(drafts, verdict, sent_at - round_began, first_at - round_began, answered - sent_at)
            draft_length.learn(outcome)
            stats.round(verdict, sent, outcome)
            tokens += verdict.tokens
            finish_reason = verdict.finish_reason
            if verdict.tokens:
                yield Committed(_origins(verdict.tokens, verdict.accepted, sent))
        stats.finish_reason = finish_reason
    finally:
        stats.total_ms = 1e3 * (clock() - began)
        stats.bytes_sent = client.transport.sent - sent_before
        stats.bytes_received = client.transport.received - received_before
        with suppress(SpecPairError, DrafterError):  # it expires by itself; the text is already here
            client.release(opened.session_id)


class _Asked:
    """`DraftLength.another` for one round; notes when it is asked: before the first draft, after it, and so on."""

    def __init__(self, draft_length: DraftLength, room: int, clock: Callable[[], float]) -> None:
        self.times: list[float] = []
        self._draft_length, self._room, self._clock = draft_length, room, clock

    def __call__(self, confidences: Sequence[float]) -> bool:
        self.times.append(self._clock())
        return self._draft_length.another(confidences, self._room)


def _outcome(drafts: list[Draft], verdict: Verdict, draft_s: float, first_s: float, exchange_s: float) -> Round:
    agreed = common_prefix([draft.token for draft in drafts], verdict.tokens)
    return Round(
        confidences=[draft.confidence for draft in drafts],
        agreed=agreed,
        compared=min(agreed + 1, len(drafts), len(verdict.tokens)),
        judged=verdict.judged,
        draft_ms=1e3 * draft_s,
        first_ms=1e3 * first_s,
        exchange_ms=1e3 * exchange_s,
    )


def _origins(tokens: list[int], accepted: int, sent: int) -> list[tuple[int, Origin]]:
    own = Origin.CORRECTION if accepted < sent else Origin.FREE
    return [(token, Origin.ACCEPTED if at < accepted else own) for at, token in enumerate(tokens)]
