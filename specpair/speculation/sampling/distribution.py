"""The target's probabilities from a row of logits: under a session's sampling settings, and as log probabilities.

Tokens are drawn without this (`sampling.choose`). A whole vocabulary takes about a millisecond in float64, so the
probabilities are computed only where a strategy or `explain` needs them.
"""

from dataclasses import asdict, dataclass, field, replace
from math import isfinite, log
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling import full_logits
from specpair.speculation.sampling.sampling import Logits, Row, Sampling
from specpair.speculation.sampling.top_logits import TopLogits

_FIRST_IDS, _WIDER = 1024, 16  # likeliest ids searched for the nucleus at first, and the factor for each further search
_DOUBT = 1e-9  # relative bound on the difference between sums of one vocabulary in different order


def probabilities(row: Row, sampling: Sampling) -> NDArray[np.float64]:
    """Probabilities after temperature, top-k and top-p as in `sampling.choose_reference`: float64 of shape (vocab,).

    They sum to 1; where the session is greedy, all mass is on the argmax. For a TopLogits, the whole row is fetched.
    Raises ValueError where the row holds a NaN or no finite value.
    """
    logits = row.whole() if isinstance(row, TopLogits) else row
    best = full_logits.likeliest(logits)
    p = np.zeros(len(logits))
    if sampling.greedy:
        p[best] = 1.0
        return p
    scaled = logits.astype(np.float64) / sampling.temperature
    kept = _kept(logits, scaled, sampling)
    mass = np.exp(scaled[kept] - scaled[best])
    p[kept] = mass / mass.sum()
    return p


def reported_sampling(sampling: Sampling) -> Sampling:
    """The settings under which probabilities are reported: `sampling`, or temperature 1 without filters if greedy."""
    return replace(sampling, temperature=1.0, top_k=0, top_p=1.0) if sampling.greedy else sampling


def draw(weights: NDArray[np.float64], u: float) -> int:
    """The index that `u`, uniform in [0, 1), draws in proportion to `weights`, at least one of which is > 0."""
    mass = np.cumsum(weights)
    at = int(np.searchsorted(mass, u * mass[-1], side="right"))
    return at if at < len(weights) else int(np.flatnonzero(weights)[-1])  # u x mass was rounded up to the total


def _kept(logits: Logits, scaled: NDArray[np.float64], sampling: Sampling) -> NDArray[np.intp] | slice:
    """The ids that pass the filters, as an index into the row. `scaled`: logits over temperature, float64."""
    size, top_p = len(logits), sampling.top_p
    if 0 < sampling.top_k < size:
        ids = full_logits.top_ids(logits, sampling.top_k)
        return ids[: full_logits.nucleus_size(scaled[ids], top_p)]
    if top_p >= 1.0:
        return slice(None)
    total = float(np.exp(scaled - scaled.max()).sum())
    searched = _FIRST_IDS
    while searched < size:
        ids = full_logits.top_ids(logits, searched)
        mass = np.cumsum(np.exp(scaled[ids] - scaled[ids[0]]))
        fewest, most = (int(mass.searchsorted(top_p * total * each)) for each in (1.0 - _DOUBT, 1.0 + _DOUBT))
        if fewest == most < searched:
            return ids[: most + 1]
        # Where the two bounds differ, it is too close to call: sum over all ids, in the order of the definition.
        searched = searched * _WIDER if most == searched else size
    ids = np.lexsort((np.arange(size), -scaled))
    return ids[: full_logits.nucleus_size(scaled[ids], top_p)]


MOST_LOGPROBS = 20  # likeliest tokens that a request may ask for
DIGITS = 6  # decimals; a float32 row knows no more


class _NotStrict:
    """As pydantic's `Strict(False)`, without pydantic: an engine can be measured where that is not installed."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler(source) | {"strict": False}


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log probability of one committed token, and those of the likeliest tokens at its position."""

    token: int = field(metadata={"ge": 0, "description": "The token that was committed."})
    logprob: float = field(metadata={"le": 0.0, "allow_inf_nan": False, "description": "Its log probability."})
    # JSON has no tuples: strict models would take an array for a list only.
    top: list[Annotated[tuple[int, float], _NotStrict()]] = field(
        metadata={"description": "The likeliest tokens and their log probabilities, the likeliest first."}
    )

    def body(self) -> dict[str, Any]:
        """The JSON object of replies."""
        return asdict(self)


def token_logprobs(row: Row, token: int, top: int) -> TokenLogprobs:
    """The log probability of `token`, and of the `top` likeliest ids (ties: the smaller id first), by `row`.

    `row`: as the engine gave it. Ids that cannot be drawn are left out.

    Raises ValueError where the row holds a NaN or no finite value.
    """
    logits = row.whole() if isinstance(row, TopLogits) else row
    best = float(logits[full_logits.likeliest(logits)])
    log_sum = best + log(float(np.exp(logits - np.float32(best)).sum(dtype=np.float64)))

    def logprob(of: int) -> float:
        return min(0.0, round(float(logits[of]) - log_sum, DIGITS))

    ids = full_logits.top_ids(logits, min(top, len(logits))).tolist() if top else []
    return TokenLogprobs(token, logprob(token), [(each, logprob(each)) for each in ids if isfinite(logits[each])])
