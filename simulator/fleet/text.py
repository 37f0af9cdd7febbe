"""Texts that a rule continues, a target that knows the rule, and a drafter that agrees with it by a given chance.

The next token depends on the two before it, so a wrong KV cache changes the text at once.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np

from backends.scripted import ScriptedBackend
from specpair.drafters.base import Expansion
from specpair.engines.backend import Entry, Logits
from specpair.speculation.drafts.tree import Proposal

Agreement = Callable[[int], float]  # by position in the output, from 0: the chance that the first choice is right
_ROWS = np.eye(258, dtype=np.float32)
_WRONG = 7  # what a drafter proposes behind a wrong token
_BRANCHES = 6  # most branches that a drafter expands in one draft step
SECOND = 0.4  # the chance that a runner-up is right where the first choice is not


def next_token(before: int, last: int) -> int:
    """The target's token behind these two."""
    return (5 * last + 3 * before + 11) % 256


class RuleTarget(ScriptedBackend):
    """The target, greedy only: one-hot logits of the rule's token."""

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        rows = []
        for slot, start, tokens, logits_from in batch:
            held = self.held[slot]
            del held[start:]
            held.extend(tokens)
            at = range(start + logits_from, len(held))
            rows.append(_ROWS[[next_token(held[i - 1], held[i]) for i in at]])
        return rows


class Text:
    """A prompt of at least two tokens and what the target writes behind it, as far as it is asked for."""

    def __init__(self, prompt: Sequence[int], agreement: Agreement, rng: random.Random) -> None:
        self.prompt_len = len(prompt)
        self._tokens, self._agreement, self._rng = [*prompt], agreement, rng
        self._right: list[tuple[bool, bool]] = []  # of the first and the second choice, by position in the output

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens from position `start` of prompt and output up to `end`."""
        known, draw = self._tokens, self._rng.random
        while len(known) < end:
            chance = self._agreement(len(known) - self.prompt_len)
            self._right.append((draw() < chance, draw() < SECOND))
            known.append(next_token(known[-2], known[-1]))
        return known[start:end]

    def proposal(self, at: int, runner_up: bool) -> Proposal:
        """What the drafter proposes for position `at`, the text before it being right."""
        (truth,) = self.tokens(at, at + 1)
        first, second = self._right[at - self.prompt_len]
        wrong, other = (truth + 1) % 256, (truth + 2) % 256
        choices = (truth, wrong) if first else (wrong, truth if second else other)
        return Proposal(choices[0], self._agreement(at - self.prompt_len), choices[1] if runner_up else None)

    def draft(self, at: int, count: int) -> list[int]:
        """A draft of the first choices for `count` tokens from position `at` on."""
        drafted, begins = self.tokens(at, at + count), at - self.prompt_len
        for index in range(count):
            if not self._right[begins + index][0]:
                return [*drafted[:index], (drafted[index] + 1) % 256, *[_WRONG] * (count - index - 1)]
        return drafted


class Agreeing:
    """The drafter of a text. Its confidence is the chance that it is right."""

    width = _BRANCHES

    def __init__(self, text: Text) -> None:
        self._text = text

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        return Expansion([self._behind(len(text), tail, runners_up) for tail in tails], len(tails))

    def _behind(self, length: int, tail: Sequence[int], runners_up: bool) -> Proposal:
        at = length + len(tail)
        if list(tail) == self._text.tokens(length, at):
            return self._text.proposal(at, runners_up)
        return Proposal(_WRONG, self._text.proposal(at, False).confidence, _WRONG + 1 if runners_up else None)
