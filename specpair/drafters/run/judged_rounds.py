"""Which of the drafts in flight each round judged."""

from collections.abc import Iterable, Iterator, Sequence

from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_source import rounds
from specpair.speculation.policy.verifier_timeline import InFlightDraft


class JudgedRounds:
    """Tells the draft of each round of one text. A draft has one round at most."""

    def __init__(self) -> None:
        self._judged: set[InFlightDraft] = set()  # those in flight of which a round is known

    def of(
        self, marks: Sequence[str], start: int, text: Sequence[int], in_flight: Iterable[InFlightDraft]
    ) -> Iterator[JudgedRound]:
        """The rounds that committed the tokens of `text` from position `start` on, which have these `marks`.

        `in_flight`: the drafts that one of the rounds may have judged. Answers may overtake each other: the draft
        whose answer brought the tokens need not be the one that the first round judged.
        """
        sent = sorted(in_flight, key=lambda each: each.sent_at)
        self._judged &= set(sent)
        for first, accepted, judged in rounds(marks):
            at = start + first
            fits = []
            for each in sent:
                fresh = None if each in self._judged else each.draft.fresh(text[each.draft.position : at])
                if fresh is not None and len(fresh) >= judged and fresh.accepted(text[at : at + accepted]) == accepted:
                    fits.append((fresh, each))
            if fits:  # the verifier judges all that is fresh, unless its pass is full
                fresh, request = min(fits, key=lambda fit: len(fit[0]))
                self._judged.add(request)
                of_it = fresh.first(judged)
                path = of_it.path(text[at : at + accepted])
                known = len(path) == accepted  # else the verifier judged it as a chain
                yield JudgedRound.of(of_it, path, request) if known else JudgedRound(judged, accepted, (), request)
            else:  # its response was lost, for example
                yield JudgedRound(judged, accepted)
