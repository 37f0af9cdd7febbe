"""Closed forms that were published for speculative decoding, and ours beside them. Times are in seconds."""


def tokens_per_round(agreement: float, length: int) -> float:
    """Mean tokens that a round of `length` draft tokens commits, each being right with the chance `agreement` < 1
    (Leviathan et al., arXiv 2211.17192)."""
    return (1.0 - agreement ** (length + 1)) / (1.0 - agreement)


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
    """The same where drafters are away for `away` in each of `rounds` rounds, so that a pass has only the texts that
    came since the one before began, and a draft waits for half a pass before its own. It holds while passes follow each
    other without a pause.

    A pass takes `fixed` and `per_text` for each of its texts.
    """
    passing = fixed / (1.0 - _below_one(rate * rounds * per_text))
    return rounds * (away + 1.5 * passing)


def _below_one(load: float) -> float:
    if not 0.0 <= load < 1.0:
        raise ValueError(f"at a load of {load:g} no request ends: it must be below 1")
    return load
