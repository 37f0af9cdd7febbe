"""Draft credit: limits the draft tokens that a pass judges for a session, by its earlier acceptance.

In a pass that sessions share, each draft token delays all of them. So a judged draft token costs its session credit,
and an accepted one earns more. A drafter with an acceptance rate of 1/4 is never limited; one that sends random ids
soon has one draft token judged in eight passes. Draft tokens beyond the credit are left out of the pass. Their number
does not depend on which tokens were drafted, so every strategy stays as exact as it is.

A new session starts with the credit that the client's latest judged session had left, so that sending each draft in a
new session gains nothing.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import accumulate
from operator import mul

from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.timing import NARROW

INITIAL = 16.0  # credit of a new session: what the longest automatic draft costs
MAXIMUM = 64.0  # credit that a session can save up: the most it can waste once its drafts become worse
PER_ACCEPTED = 4.0  # credit earned by an accepted draft token
PER_PASS = 0.125  # credit earned by every pass, so that a drafter that has improved is noticed
FULL_PRICE_SHARE = 0.02  # a draft token costs 1 if it lengthens a one-token pass by at least this share
_MOST_CLIENTS = 1024  # clients that are remembered, those judged most recently


class DraftCredit:
    """The credit of one session, in draft tokens at full price."""

    def __init__(self, credit: float = INITIAL) -> None:
        self.credit = credit

    def drafts(self, price: float) -> int | None:
        """How many draft tokens the next pass may judge at `price` each; None: any number, as they cost nothing."""
        return int(self.credit / price) if price > 0.0 else None

    def judged(self, drafts: int, accepted: int, price: float) -> None:
        """Account for a pass that judged `drafts` draft tokens and accepted `accepted` of them."""
        credit = self.credit + PER_PASS - price * drafts + PER_ACCEPTED * accepted
        self.credit = min(max(credit, 0.0), MAXIMUM)


class ClientCredit:
    """Remembers how much credit the latest judged session of each client had left."""

    def __init__(self) -> None:
        self._left: OrderedDict[Hashable, float] = OrderedDict()

    def draft_credit(self, client: Hashable) -> DraftCredit:
        """The credit of a new session. `client`: None if unknown."""
        return DraftCredit(min(INITIAL, self._left.get(client, INITIAL)))

    def judged(self, client: Hashable, draft_credit: DraftCredit) -> None:
        """Note that a pass has judged draft tokens of a session of `client`, which leaves `draft_credit`."""
        if client is not None:
            self._left[client] = draft_credit.credit
            self._left.move_to_end(client)
            if len(self._left) > _MOST_CLIENTS:
                self._left.popitem(last=False)


def price(pass_times: Sequence[float]) -> float:
    """Draft credit that a judged draft token costs, 0 to 1; 1 if `pass_times` is too short to tell.

    `pass_times`: seconds of passes over 1, 2, … tokens, measured while the machine was idle. Passes under load differ
    too little in width, and are disturbed too much by other work, to show what one more token adds.
    """
    narrow = CostByWidth.of(pass_times)[:NARROW]
    if len(narrow) < 2:
        return 1.0
    share = (narrow[-1] - narrow[0]) / (len(narrow) - 1) / narrow[0]
    return min(share / FULL_PRICE_SHARE, 1.0)


def worth_judging(
    chances: Sequence[Sequence[float]], sessions: int, width: int, pass_times: Sequence[float]
) -> list[int]:
    """How many draft tokens of each draft a shared pass should judge to bring the most tokens per second.

    `chances`: for each draft the chance of each token that it is accepted if those before it are.
    `sessions`: how many share the pass, each of which gets a token in any case.
    `width`: tokens that the pass has in any case.
    `pass_times`: seconds of passes over 1, 2, … tokens.

    A token is likelier to be accepted than those behind it, so those that are judged are the likeliest of all.
    """
    ranked = sorted(
        (-chance, depth, draft)
        for draft, each in enumerate(chances)
        for depth, chance in enumerate(accumulate(each, mul))
    )
    cost = CostByWidth.of(pass_times)
    brought = accumulate((-chance for chance, _, _ in ranked), initial=float(sessions))
    rates = [each / cost.at(width + more) for more, each in enumerate(brought)]
    judged = [0] * len(chances)
    for _, _, draft in ranked[: rates.index(max(rates))]:
        judged[draft] += 1
    return judged
