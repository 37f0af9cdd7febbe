"""The distribution q of a drawn draft token: a few ids with weights, small enough to travel in the verify request.

A drafter's distribution is cut to its likeliest ids and rounded, and the draft token is drawn from exactly what is
sent. So q is complete, however small a part of the drafter's distribution it covers. Both ends normalise the weights by
the same exactly rounded sum, and so have exactly the same q.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from speculation.errors import InvalidRequest
from speculation.sampling import full_logits, gumbel, nucleus
from speculation.sampling.distribution import draw
from speculation.sampling.gumbel import Purpose
from speculation.sampling.processor_options import token_id
from speculation.sampling.sampling import Row, Sampling
from speculation.sampling.top_logits import TopLogits

Weights = Mapping[int, float]  # token id -> weight, ids ascending; the weights sum to 1 but for rounding

MOST_IDS = 8192  # most ids in the `draft_probs` of a verify request, unless `_IDS` for each draft token are more
_IDS = 32  # most ids that a drafter sends for a draft token; less likely ids hardly ever make a difference
_LEAST = 1e-5  # least weight of an id that is sent
_DIGITS = 6  # significant digits of a weight
_OFF = 1e-3  # tolerance of the weights' sum around 1; rounding stays far below it


def normalised(weights: Weights) -> dict[int, float]:
    """`weights` divided by their sum."""
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def propose(row: Row, sampling: Sampling) -> Weights:
    """The distribution to draw a draft token from: the row's likeliest ids under `sampling`, cut and rounded.

    A single id where `sampling` is greedy. Raises ValueError where the row holds a NaN or no finite value.
    """
    if isinstance(row, TopLogits):
        row.check()
        ids, logits = row.ids, row.logits
    else:
        full_logits.likeliest(row)  # raises for an invalid row
        ids = full_logits.top_ids(row, min(max(_IDS, sampling.top_k), len(row)))
        logits = row[ids]
    most = 1 if sampling.greedy else sampling.top_k or len(ids)
    scaled = logits[:most].astype(np.float64) / sampling.softmax_temperature
    if sampling.top_p < 1.0:
        total = None if sampling.top_k else _mass(row, sampling, float(scaled[0]))
        scaled = scaled[: nucleus.nucleus_size(scaled, sampling.top_p, total)]
    mass = np.exp(scaled[:_IDS] - scaled[0])
    pairs = zip(ids.tolist(), (mass / mass.sum()).tolist(), strict=False)
    return {token: float(f"{weight:.{_DIGITS}g}") for token, weight in sorted(pairs) if weight >= _LEAST}


def drawn_from(weights: Weights, seed: int, position: int) -> int:
    """The draft token for absolute `position`, drawn from `weights`."""
    u = gumbel.uniform(gumbel.row_key(seed, position, Purpose.DRAFT))
    return list(weights)[draw(np.fromiter(weights.values(), np.float64), u)]


def read(sent: Sequence[Mapping[str, float]], drafts: Sequence[int], vocabulary_size: int) -> list[Weights]:
    """The distributions in `draft_probs` of a verify request, one for each of its draft tokens.

    Raises InvalidRequest that names the item and what is wrong with it.
    """
    if len(sent) != len(drafts):
        raise InvalidRequest(
            f"draft_probs: there are {len(sent)} of them for {len(drafts)} draft_tokens: send one for each",
            param="draft_probs",
        )
    ids, most = sum(map(len, sent)), max(MOST_IDS, _IDS * len(drafts))
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


def _mass(row: Row, sampling: Sampling, top: float) -> float:
    """Unnormalised mass of all ids, in units of the mass of an id with the scaled logit `top`."""
    if isinstance(row, TopLogits) and row.temperature == sampling.softmax_temperature:
        return math.exp(min(row.log_sum - top, 700.0))  # far beyond any vocabulary, within float64
    logits = row.whole() if isinstance(row, TopLogits) else row
    return float(np.exp(logits.astype(np.float64) / sampling.softmax_temperature - top).sum())
