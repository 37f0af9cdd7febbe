"""Texts that follow a rule, a target that knows the rule, and drafters that agree with the target by a law.

The next token depends on the two before it, so a wrong KV cache changes the text at once.
"""

import random
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from backends.scripted import BEGIN, ScriptedBackend
from lab.simulator.fleet.record import Conversation
from lab.simulator.virtual.agreement import Agreement
from specpair.drafters.base import Expansion
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.speculation.drafting.tree import Proposal

_ROWS = np.eye(258, dtype=np.float32)
WRONG = 7  # what a drafter proposes behind a wrong token
_BRANCHES = 6  # most branches that a drafter expands in one draft step
# How often the second choice, the third and so on is right where the first is not. A draft model tells these chances.
# As of Qwen2.5-Coder 0.5B at 538 places of the texts that `lab.benchmarks.real_pair` has of its 1.5B.
OTHERS = (0.48, 0.18, 0.08, 0.07, 0.02)
_UP_TO = (*accumulate(OTHERS),)


def next_token(before: int, last: int) -> int:
    """The target's token behind these two."""
    return (5 * last + 3 * before + 11) % 256


class RuleTarget(ScriptedBackend):
    """The target, greedy only: one-hot logits of the rule's token. What its head drafts is not in its rows: see
    `VirtualHead`."""

    def __init__(self, head_depth: int = 0, **options: Any) -> None:
        """`options`: of a `ScriptedBackend`."""
        super().__init__(**options)
        self.head_depth = head_depth

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        return _ROWS[[0] * len(batch)]

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        rows = []
        for entry in batch:
            slot, start, tokens, logits_from, parents = entry
            trunk = entry.trunk
            held = self._fed(slot, start, tokens[:trunk])
            found = [next_token(held[i - 1], held[i]) for i in range(start + min(logits_from, trunk), len(held))]
            for at in range(max(logits_from, trunk), len(tokens)):
                found.append(next_token(tokens[at - parents[at - trunk]], tokens[at]))
            rows.append(_ROWS[found])
        return rows


class Text:
    """A prompt of at least two tokens and the target's continuation, computed on demand."""

    def __init__(self, prompt: Sequence[int], stream: Callable[[str], random.Random], kind: str = "") -> None:
        """`stream`: the stream of chance of a name.
        `kind`: of the text, for laws of agreement.
        """
        self.prompt_len, self.kind, self.stream = len(prompt), kind, stream
        self._tokens, self._rng = [*prompt], stream("agreement")
        self._drawn: list[tuple[float, int]] = []  # see `drawn`, by position in the output

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens from position `start` of prompt and output up to `end`."""
        known, draw = self._tokens, self._rng.random
        while len(known) < end:
            self._drawn.append((draw(), bisect(_UP_TO, draw())))
            known.append(next_token(known[-2], known[-1]))
        return known[start:end]

    def drawn(self, at: int) -> tuple[float, int]:
        """For a position of the output that was asked for: a number that is evenly distributed from 0 to 1, below the
        chance of whoever is right there; and which of the choices after the first is right where the first is not: 0
        is the second, and `len(OTHERS)` none."""
        return self._drawn[at]


def text_of(
    conversation: Conversation, number: int, before: Sequence[int], stream: Callable[[str], random.Random]
) -> Text:
    """The text of a conversation's turn `number`, the first being 0.

    `before`: prompt and output of the turn before; the first turn needs none.
    `stream`: the stream of chance of a name.
    """
    name = f"{conversation.name}/{number}"
    if not number:
        shared = stream(f"prefix of {conversation.tenant}")
        before = [BEGIN, *(shared.randrange(256) for _ in range(conversation.prefix))]
    chance = stream(f"{name}/prompt")
    prompt = [*before, *(chance.randrange(256) for _ in range(conversation.new_tokens(number)))]
    return Text(prompt, lambda what: stream(f"{name}/{what}"), conversation.tenant)


class Choices:
    """The proposals of a draft model for a text. The more is right, the greater its chances: the numbers that decide
    are the text's, the same for every model, and whenever a position is drafted again."""

    def __init__(self, text: Text, agreement: Agreement) -> None:
        self._text, self._chance = text, partial(agreement.chance, kind=text.kind)

    def tokens(self, start: int, end: int) -> list[int]:
        """The text's."""
        return self._text.tokens(start, end)

    def proposal(self, at: int, position: int, runners_up: int) -> Proposal:
        """What is proposed for the text's token `at` as draft token `position`, all before it being right.

        The confidence is the chance that the first choice is right. `runners_up`: choices after it.
        """
        (truth,) = self._text.tokens(at, at + 1)
        output = at - self._text.prompt_len
        (number, other), chance = self._text.drawn(output), self._chance(position)
        choices = [(truth + each) % 256 for each in range(1, 2 + runners_up)]
        right = 0 if number < chance else 1 + other
        if right <= len(OTHERS):
            choices.insert(right, truth)
        return _proposal(choices[: 1 + runners_up], chance)

    def draft(self, at: int, count: int) -> list[int]:
        """A draft of the first choices for `count` tokens from position `at` on."""
        drafted, begins = self.tokens(at, at + count), at - self._text.prompt_len
        for index in range(count):
            if self._text.drawn(begins + index)[0] >= self._chance(index):
                return [*drafted[:index], (drafted[index] + 1) % 256, *[WRONG] * (count - index - 1)]
        return drafted


class Agreeing:
    """The drafter of a text: it drafts its first choices, and as many after them as are wanted."""

    width = _BRANCHES

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([self._behind(len(text), tail, runners_up) for tail in tails], len(tails))

    def _behind(self, length: int, tail: Sequence[int], runners_up: int) -> Proposal:
        at, choices = length + len(tail), self._choices
        proposal = choices.proposal(at, len(tail), runners_up)
        if list(tail) == choices.tokens(length, at):
            return proposal
        return _proposal(range(WRONG, WRONG + 1 + runners_up), proposal.confidence)


def _proposal(choices: Sequence[int], confidence: float) -> Proposal:
    """A proposal of these choices, the first choice first."""
    first, *others = choices
    runner_up = others[0] if others else None
    return Proposal(first, confidence, runner_up, further=tuple(others[1:]), parts=OTHERS[: len(others)])
