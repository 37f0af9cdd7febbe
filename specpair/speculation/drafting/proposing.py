"""The proposal that a row of logits of whatever drafts makes."""

from specpair.speculation.acceptance.draft_probs import drawn_from, normalised, propose
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Row, Sampling, choose_several, probabilities


def proposal(row: Row, sampling: Sampling, position: int, runners_up: int = 0, *, draws: bool = False) -> Proposal:
    """The next token, with the verifier's noise unless it `draws`, at a position of the text.

    `runners_up`: how many choices after the first are wanted.
    `draws`: draw it with separate noise, from the distribution that is sent along with it, as the strategy
        `probabilistic` requires.
    """
    if draws:
        weights = propose(row, sampling)
        token = drawn_from(weights, sampling.seed, position)
        return Proposal(token, normalised(weights)[token], probs=weights)
    chosen = choose_several(row, sampling, position, 1 + runners_up)
    return Proposal.of(chosen, probabilities(row, chosen, sampling))
