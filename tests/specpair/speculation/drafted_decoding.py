"""A toy target and drafter that decode a short text for many seeds, to compare the texts with the target's.

The logits of both depend on the last token, so that a wrong token also changes the distribution of the next one.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np

from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, propose
from specpair.speculation.acceptance.judge import Rule, judge
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import chain
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation import chi_square

IDS = 5
SEEDS = 3000
_FIRST = 0  # the first token of every text

# The token at a position and whether it is the accepted draft token, from the row, the settings, the draft token, the
# distribution it was drawn from, and the position.
Decide = Callable[[Logits, Sampling, int, Weights, int], tuple[int, bool]]


@cache
def target_row(before: int) -> Logits:
    return np.random.default_rng([1, before]).standard_normal(IDS).astype(np.float32)


@cache
def drafter_row(before: int) -> Logits:
    """The target's row with noise: similar, but not equal."""
    return target_row(before) + np.random.default_rng([2, before]).standard_normal(IDS).astype(np.float32)


def by_rule(rule: Rule) -> Decide:
    """The verifier's judgement of one draft token under `rule`."""

    def decide(row: Logits, _: Sampling, draft: int, proposal: Weights, position: int) -> tuple[int, bool]:
        ruling = judge(chain([draft], [proposal]), [row, row], rule, position, set())[0]
        return ruling.token, ruling.accepted

    return decide


def ours(strategy: Strategy) -> Callable[[Sampling], Decide]:
    return lambda sampling: by_rule(Rule(strategy, sampling))


def text(sampling: Sampling, decide: Decide, drafts: int, count: int) -> tuple[int, ...]:
    """The first `count` tokens, decoded in rounds of `drafts` draft tokens and a recovered or bonus token."""
    tokens = [_FIRST]
    while len(tokens) <= count:
        drafted: list[tuple[int, Weights]] = []
        for _ in range(drafts):
            weights = propose(drafter_row(drafted[-1][0] if drafted else tokens[-1]), sampling)
            drafted.append((drawn_from(weights, sampling.seed, len(tokens) + len(drafted)), weights))
        for draft, weights in drafted:
            token, accepted = decide(target_row(tokens[-1]), sampling, draft, weights, len(tokens))
            tokens.append(token)
            if not accepted:
                break
        else:
            tokens.append(choose(target_row(tokens[-1]), sampling, len(tokens)))
    return tuple(tokens[1 : count + 1])


def texts(make: Callable[[Sampling], Decide], sampling: Sampling, drafts: int, count: int) -> Counter[tuple[int, ...]]:
    """How often each text occurs over all seeds."""
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(SEEDS):
        seeded = Sampling(seed, sampling.temperature, sampling.top_k, sampling.top_p)
        found[text(seeded, make(seeded), drafts, count)] += 1
    return found


def is_the_targets(found: Counter[tuple[int, ...]], sampling: Sampling, count: int) -> bool:
    """Whether texts of `count` tokens are distributed as those of the target alone."""
    every = list(product(range(IDS), repeat=count))
    expected = []
    for tokens in every:
        p = [probabilities(target_row(a), sampling)[b] for a, b in zip((_FIRST, *tokens), tokens, strict=False)]
        expected.append(float(np.prod(p)))
    return chi_square.fits_pooled([found[tokens] for tokens in every], expected)
