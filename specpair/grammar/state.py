"""The state of a text in its grammar: the logit processor that masks the tokens that the grammar forbids."""

from collections.abc import Callable, Collection
from math import inf
from typing import ClassVar

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from specpair.grammar.keywords import short
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.row_changes import LogitProcessor
from specpair.speculation.sampling.top_logits import Logits

_WORD = 32  # ids in a word of a mask
_FEW = 256  # words with allowed ids up to which it is faster to write these ids anew than to mask the others


class GrammarState(LogitProcessor):
    """Follows the output through a grammar.

    Where the grammar forces the next bytes, it allows the one token with which the vocabulary writes them. When nothing
    can follow, it allows the end token alone. Behind a token that it forbids, and behind an end token, it changes no
    row: a draft may hold such tokens, which are rejected.
    """

    limits: ClassVar[bool] = True
    forces: ClassVar[bool] = True

    def __init__(
        self,
        matcher: LLMatcher,
        size: int,
        ends: Collection[int],
        end: int,
        *,
        canonical: bool = True,
        after: int | None = None,
        name: str = "grammar",
        on_error: Callable[[], None] = lambda: None,
    ) -> None:
        """`matcher`: new, and used by nothing else.
        `size`: ids of the vocabulary.
        `ends`: ids of its end tokens.
        `end`: the one that ends a text that can go on with nothing else.
        `canonical`: whether forced bytes become the tokens with which the vocabulary writes them. If not, no more is
            known than which tokens fit.
        `after`: the token behind which the grammar begins; None: it begins with the output.
        `name`: the option that gives the grammar, for errors.
        `on_error`: called when the grammar cannot be followed any further.
        """
        self._name, self._on_error = name, on_error
        self._matcher, self._size, self._ends, self._end = matcher, size, frozenset(ends), end
        self._canonical = canonical
        self._after, self._before = after, 0  # tokens before the grammar begins
        self._waits, self._inside = after is not None, 0  # tokens that the grammar has taken in
        self._mask = allocate_token_bitmask(1, size)
        self._words = self._mask[0]  # a bit for each id: 1 if it is allowed
        self._beyond = 0  # tokens since, and with, the first one that the grammar cannot take in
        self._fresh = False  # whether the mask is of this place
        self._failed = False  # whether the grammar has become too complex to take in a token

    def push(self, token: int) -> None:
        if self._waits:
            self._before += 1
            self._waits = token != self._after
        elif self._beyond or token in self._ends:
            self._beyond += 1
        elif not self._matcher.try_consume_tokens([token]):
            self._beyond += 1
            self._failed = self._matcher.is_error()
        else:
            self._inside += 1
            self._fresh = False

    def pop(self, token: int) -> None:
        if self._beyond:
            self._beyond -= 1
        elif self._inside:
            self._matcher.rollback(1)
            self._inside -= 1
            self._fresh = False
        else:
            self._before -= 1
            self._waits = True

    def process(self, row: Logits) -> None:
        """As for `LogitProcessor`. Raises InvalidRequest where the grammar has become too complex to go on."""
        if self._free:
            return
        self._fill()
        words = np.flatnonzero(self._words)
        if len(words) > _FEW:
            shared = min(len(row), self._size)
            allowed = np.unpackbits(self._words.view(np.uint8), count=shared, bitorder="little")
            np.putmask(row[:shared], allowed == 0, -inf)
            row[shared:] = -inf
            return
        ids = self._ids_in(words)
        ids = ids[: np.searchsorted(ids, len(row))]
        if len(ids):  # else it is the row of a draft model that has none of these ids, and as good as any
            logits = row[ids]
            row.fill(-inf)
            row[ids] = logits

    def allows(self, token: int) -> bool:
        if self._free:
            return True
        if not self._canonical and token not in self._ends:
            return bool(self._matcher.validate_tokens([token]))
        self._fill()
        return 0 <= token < self._size and bool(self._words[token // _WORD] >> (token % _WORD) & 1)

    def only(self) -> int | None:
        if self._free or not (self._canonical or self._matcher.is_stopped()):
            return None
        self._fill()
        words = np.flatnonzero(self._words)
        if len(words) != 1 or len(ids := self._ids_in(words)) != 1:
            return None
        return int(ids[0])

    @property
    def _free(self) -> bool:
        """Whether any token may come."""
        return self._waits or (self._beyond > 0 and not self._failed)

    def _ids_in(self, words: NDArray[np.intp]) -> NDArray[np.intp]:
        """The allowed ids whose bits are in these words, in ascending order."""
        bits = np.unpackbits(self._words[words].view(np.uint8), bitorder="little").reshape(-1, _WORD)
        found, at = np.nonzero(bits)
        return words[found] * _WORD + at

    def _fill(self) -> None:
        if self._fresh and not self._failed:
            return
        if self._matcher.is_stopped() and not self._matcher.is_error():
            self._words.fill(0)
            self._words.view(np.uint32)[self._end // _WORD] = 1 << (self._end % _WORD)
        else:
            fill_next_token_bitmask(self._matcher, self._mask)
        if self._matcher.is_error():
            self._on_error()
            why = f"it cannot be followed any further: {short(self._matcher.get_error())}"
            raise InvalidRequest(f"{self._name}: {why}", param=self._name)
        self._fresh = True
