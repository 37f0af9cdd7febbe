"""Closed forms that were published for speculative decoding, and ours beside them. Times are in seconds."""

import math
from collections.abc import Iterator


def tokens_per_round(agreement: float, length: int) -> float:
    """Mean tokens that a round of `length` draft tokens commits, each being right with the chance `agreement` < 1
    (Leviathan et al., arXiv 2211.17192)."""
    return (1.0 - agreement ** (length + 1)) / (1.0 - agreement)


def mean_rounds(tokens: int, agreement: float, length: int) -> float:
    """Mean rounds in which `tokens` tokens are committed, by the same law: the last one may have more than are left."""
    chances = [agreement**accepted * (1.0 - agreement) for accepted in range(length)] + [agreement**length]
    rounds = [0.0]
    for left in range(1, tokens + 1):
        later = (chance * rounds[max(0, left - brought)] for brought, chance in enumerate(chances, 1))
        rounds.append(1.0 + math.fsum(later))
    return rounds[-1]


def capacity_gain(length: int, draft: float, verify: float) -> float:
    """How many times more clients a saturated server serves at the same rate each if it need not draft (arXiv
    2606.25091). The server runs one model for one text at a time.

    `draft`, `verify`: of a draft step and of a verify pass of the server.
    """
    return 1.0 + length * draft / verify


def latency(alone: float, per_text: float, rate: float) -> float:
    """Mean time of a request where each text in flight adds `per_text` to it (Kong et al., arXiv 2605.15051). Little's
    law gives the texts in flight by the requests' rate.

    `alone`: the time without load.

    Raises ValueError where the load is too high for any time.
    """
    return alone / (1.0 - _below_one(rate * per_text))


def remote_latency(rounds: float, away: float, fixed: float, per_text: float, rate: float) -> float:
    """The same where drafters are away for `away` in each of `rounds` rounds, so that a pass has only the drafts that
    came while the one before ran.

    A pass takes `fixed` and `per_text` for each of its texts. The texts in flight are a birth and death process: each
    ends at the pace that a round has among so many (`_round_times`), and Little's law gives the time.
    """
    _below_one(rate * rounds * per_text)
    weight, weights, texts = 0.0, 1.0, 0.0  # logarithm of the weight of so many texts; sums, in units of the greatest
    greatest = 0.0
    for number, seconds in enumerate(_round_times(away, fixed, per_text), 1):
        grows = rate * rounds * seconds / number
        weight += math.log(grows)
        if weight > greatest:
            shrink = math.exp(greatest - weight)
            weights, texts, greatest = weights * shrink, texts * shrink, weight
        weights += math.exp(weight - greatest)
        texts += number * math.exp(weight - greatest)
        if grows < 1.0 and weight < greatest - 40.0:
            return texts / weights / rate
    raise AssertionError("there is a time for every number of texts")


def _round_times(away: float, fixed: float, per_text: float) -> Iterator[float]:
    """Seconds of a round among 1, 2, 3, ... texts, without end.

    As in mean value analysis, a draft finds what there is on average with one text fewer: while a pass runs, it waits
    for half of it, and then it shares a pass with the drafts that came during one.
    """
    flow = running = passing = 0.0  # drafts a second, share of time with a pass, and the pass, among one text fewer
    texts = 0
    while True:
        texts += 1
        others = flow * running * passing
        waits = running * passing / 2
        passing = fixed + per_text * (1.0 + others)
        seconds = away + waits + passing
        flow = texts / seconds
        running = min(1.0, flow * passing / (1.0 + others))
        yield seconds


def _below_one(load: float) -> float:
    if not 0.0 <= load < 1.0:
        raise ValueError(f"at a load of {load:g} no request ends: it must be below 1")
    return load
