"""Counts one text in the usage of its caller's key."""

from specpair.http_service.keys.access import Caller
from specpair.http_service.keys.accounts import Accounts
from specpair.speculation.acceptance.round_counts import RoundCounts


class UsageCounter:
    """One text in the account of its caller's key. Used in the event loop."""

    def __init__(self, accounts: Accounts, caller: Caller, prompt_tokens: int) -> None:
        """Begin the text. Raises RateLimited if the key has all the texts that it may have at once."""
        self._account, self._clock = accounts.of(caller.key_name), accounts.clock
        self._prompt_tokens = prompt_tokens  # those that are not counted yet
        self._ended = False
        self._account.begin_text(caller.limits, self._clock())

    def came(self, tokens: int) -> None:
        """Count newly committed tokens."""
        self._account.count(self._clock(), prompt=self._prompt_tokens, generated=tokens)
        self._prompt_tokens = 0

    def end(self, counts: RoundCounts) -> None:
        """End the text. May be called again. `counts`: what became of its draft tokens."""
        if not self._ended:
            self._ended = True
            now = self._clock()
            self._account.count(now, drafted=counts.drafted, accepted=counts.accepted)
            self._account.end_text(now)
