"""How many drafts of a session are judged in a pass, by what became of its earlier ones.

In a pass that sessions share, each draft holds up all of them. So every judged draft costs its session credit and
every accepted one earns more: a drafter of which one draft in four is accepted is never limited, and one that sends
random ids soon has one draft judged in eight passes. Drafts beyond the credit are left out of the pass; how many that
are depends on no draft, so that every strategy stays as exact as it is.

A fresh session begins with what the latest judged session of its client had left, so that sending each draft in a new
session gains nothing.
"""

from collections import OrderedDict
from collections.abc import Sequence

FIRST = 16.0  # credit of a fresh session: as much as the longest automatic draft costs
MOST = 64.0  # what a session can have saved up, and so what it can waste once it sends worse drafts
EARNED = 4.0  # by an accepted draft
PER_PASS = 0.125  # by every pass, so that a drafter that has become better is noticed
DEAR = 0.02  # share of a pass over one token that another token takes, from which on a judged draft costs 1


class DraftCredit:
    """The credit of one session, in drafts of full price."""

    def __init__(self, credit: float = FIRST) -> None:
        self.credit = credit

    def drafts(self, price: float) -> int | None:
        """How many drafts may be judged in the next pass; None: any number, as they cost nothing."""
        return int(self.credit / price) if price > 0.0 else None

    def judged(self, drafts: int, accepted: int, price: float) -> None:
        """Take in a pass that judged so many drafts, and accepted so many of them."""
        credit = self.credit + PER_PASS - price * drafts + EARNED * accepted
        self.credit = min(max(credit, 0.0), MOST)


class ClientCredit:
    """What the latest judged session of each client had left: of the clients that were judged last."""

    def __init__(self, clients: int = 1024) -> None:
        self._most = clients
        self._left: OrderedDict[str, float] = OrderedDict()

    def draft_credit(self, client: str) -> DraftCredit:
        """That of a fresh session. `client`: empty where nobody knows whose it is."""
        return DraftCredit(min(FIRST, self._left.get(client, FIRST)))

    def judged(self, client: str, draft_credit: DraftCredit) -> None:
        """A pass has judged drafts of a session of that client."""
        if client:
            self._left[client] = draft_credit.credit
            self._left.move_to_end(client)
            if len(self._left) > self._most:
                self._left.popitem(last=False)


def price(pass_ms: Sequence[float]) -> float:
    """What a judged draft costs, where passes over 1, 2, … tokens take so many milliseconds; 1 where nobody knows.

    By what was tried when nothing else went on: passes at work differ too little in width, and too much in what else
    the machine does meanwhile, to tell what a token adds.
    """
    if len(pass_ms) < 2 or pass_ms[0] <= 0.0:
        return 1.0
    share = (pass_ms[-1] - pass_ms[0]) / (len(pass_ms) - 1) / pass_ms[0]
    return min(max(share, 0.0) / DEAR, 1.0)
