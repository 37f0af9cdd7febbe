"""Reads the `draft_probs` of a verify request: the distributions that its draft tokens were drawn from."""

import math
from collections.abc import Mapping, Sequence

from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.draft_probs import MOST_IDS, Weights
from specpair.speculation.sampling.processors import token_id

MOST_IN_A_REQUEST = 8192  # ids, unless `MOST_IDS` for each draft token are more
_OFF = 1e-3  # tolerance of the weights' sum around 1; rounding stays far below it


def read(sent: Sequence[Mapping[str, float]], drafts: Sequence[int], vocabulary_size: int) -> list[Weights]:
    """The distributions in `draft_probs` of a verify request, one for each of its draft tokens.

    Raises InvalidRequest that names the item and what is wrong with it.
    """
    if len(sent) != len(drafts):
        raise InvalidRequest(
            f"draft_probs: there are {len(sent)} of them for {len(drafts)} draft_tokens: send one for each",
            param="draft_probs",
        )
    ids, most = sum(map(len, sent)), max(MOST_IN_A_REQUEST, MOST_IDS * len(drafts))
    if ids > most:
        raise InvalidRequest(
            f"draft_probs: {ids} ids for {len(drafts)} draft_tokens, at most {most} are taken: draw from fewer",
            param="draft_probs",
            limit=most,
        )
    return [
        _read(f"draft_probs.{at}", *pair, vocabulary_size) for at, pair in enumerate(zip(sent, drafts, strict=True))
    ]


def _read(name: str, sent: Mapping[str, float], draft: int, vocabulary_size: int) -> Weights:
    def refuse(what: str) -> InvalidRequest:
        return InvalidRequest(f"{name}: {what}", param=name)

    weights: dict[int, float] = {}
    for key, weight in sent.items():
        token = token_id(key)
        if token is None or token >= vocabulary_size:
            raise refuse(f"{key[:20]!r} is no token id of the vocabulary of {vocabulary_size} ids")
        if not 0.0 < weight <= 1.0 + _OFF:  # nor NaN
            raise refuse(f"the weight of {key} is {weight}, not above 0 and at most 1: leave out what cannot be drawn")
        weights[token] = weight
    if draft not in weights:
        raise refuse(f"the draft token {draft} is not among the ids, and so cannot have been drawn from them")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > _OFF:
        raise refuse(f"the weights sum to {total:.6g}, not to 1: send the whole distribution that the draft is from")
    return dict(sorted(weights.items()))
