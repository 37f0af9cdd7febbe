"""Ended texts whose slots are kept for a later text with the same beginning.

A prompt is then read from where it differs from such a text. Who may reuse a text is said by its scope: how fast a
prompt is read tells what others wrote before.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from specpair.engines.backend import Backend
from specpair.engines.prompt_passes import Reading, unchanged

SHARED_AT_LEAST = 16  # tokens by which a shared prefix must be longer than those a slot already holds


@dataclass(eq=False, slots=True)
class KeptText:
    """The first tokens of a text that has ended, the slot that holds them, and which of them were read as prompts."""

    slot: int
    tokens: list[int]
    scope: Hashable
    readings: Sequence[Reading]


class KeptTexts:
    """The kept texts of one engine, up to a number of tokens in all. Not thread-safe."""

    def __init__(self, backend: Backend, most: int | None = None) -> None:
        """`most`: tokens that are kept; 0: no text is; None: as many as the slots hold."""
        self._backend, self._most = backend, inf if most is None else most
        self._texts: dict[KeptText, None] = {}  # in order of age: the oldest first
        self.tokens = 0  # in all kept texts

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[KeptText]:
        return iter(self._texts)

    def keep(self, text: KeptText) -> list[int]:
        """Keep a text if there is room; the oldest texts are dropped. Returns the slots that are no longer needed."""
        useless = len(text.tokens) <= SHARED_AT_LEAST
        if useless or len(text.tokens) > self._most or self._backend.has_overflowed(text.slot):
            return [text.slot]
        self._texts[text] = None
        self.tokens += len(text.tokens)
        freed = []
        while self.tokens > self._most:
            oldest = next(iter(self._texts))
            self.remove(oldest)
            freed.append(oldest.slot)
        return freed

    def remove(self, text: KeptText) -> None:
        """Keep `text` no longer: its slot is the caller's."""
        del self._texts[text]
        self.tokens -= len(text.tokens)

    def oldest(self, other_than: KeptText | None = None) -> KeptText | None:
        """The oldest text except `other_than`; None: there is no other."""
        return next((text for text in self._texts if text is not other_than), None)

    def best(self, tokens: Sequence[int], scope: Hashable, more_than: int = 0) -> tuple[KeptText | None, int]:
        """The kept text that shares the longest prefix with `tokens`, and how many tokens of it can be reused.

        None, and 0: no text of the `scope` saves `SHARED_AT_LEAST` tokens beside the `more_than` first ones.
        """
        found, best = None, more_than + SHARED_AT_LEAST - 1
        for text in self._texts:
            if text.scope == scope:
                held = text.tokens, len(text.tokens), text.readings
                common = reusable(self._backend, text.slot, *held, tokens, best)
                if common > best:
                    found, best = text, common
        return (found, best) if found is not None else (None, 0)

    def nearest(self, tokens: Sequence[int], scope: Hashable) -> KeptText | None:
        """The kept text that shares a long prefix with `tokens` and has few other tokens; None: there is none.

        Where nothing of it can be reused, as a wide pass takes more, a text like it still gets the same bits again in
        its place: an engine may sum in the order of its memory.
        """
        found, best, others = None, SHARED_AT_LEAST - 1, 2 * (self._backend.wide_pass or 1)
        for text in self._texts:
            if text.scope == scope:
                common = shared_length(text.tokens, tokens, min(len(text.tokens), len(tokens)))
                if common > best and len(text.tokens) - common <= others:
                    found, best = text, common
        return found

    def shrunk(self) -> list[int]:
        """Forget texts that the engine no longer holds whole, as after clearing NaN. Returns their slots."""
        lost = [text for text in self._texts if self._backend.length(text.slot) < len(text.tokens)]
        for text in lost:
            self.remove(text)
        return [text.slot for text in lost]


def reusable(
    backend: Backend,
    slot: int,
    text: Sequence[int],
    held: int,
    readings: Sequence[Reading],
    tokens: Sequence[int],
    more_than: int,
) -> int:
    """How many of the first tokens of a prompt can be taken from `slot`, which holds the first `held` tokens of `text`;
    0 unless they are `more_than` so many.

    `readings`: which tokens of `text` were read as prompts.
    `tokens`: the prompt. `Backend.reuse_rest` of them are left to read, or as many more as `unchanged` asks for.
    """
    most = min(held, len(tokens) - backend.reuse_rest)
    # The token behind `more_than` is compared first: most texts differ there or before.
    if most <= more_than or text[more_than] != tokens[more_than]:
        return 0
    common = unchanged(backend, readings, shared_length(text, tokens, most), len(tokens))
    return common if common > more_than and pays_to_cut(backend, slot, common) else 0


def can_cut(backend: Backend, slot: int, length: int) -> bool:
    """Whether the engine can roll the slot back to `length` tokens, so that a copy can end there."""
    limit = backend.max_rollback
    return limit is None or backend.length(slot) - length <= limit


def pays_to_cut(backend: Backend, slot: int, length: int) -> bool:
    """Whether `can_cut` holds and the next pass rereads less than half of these tokens, at most one batch."""
    return can_cut(backend, slot, length) and (
        backend.reread(slot, length) <= min(length // 2, backend.max_batch_tokens)
    )


def shared_length(left: Sequence[int], right: Sequence[int], length: int) -> int:
    """Length of the common prefix of the first `length` tokens, by bisection over slices: no loop over tokens."""
    same, end = 0, length
    while same < end:
        middle = (same + end + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle - 1
    return same
