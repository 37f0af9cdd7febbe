"""Log probabilities of a token and of the likeliest ones, from the target's row as the model gave it.

They are of the distribution at temperature 1, before logit processors and filters, as vLLM's `raw_logprobs`.
"""

from dataclasses import asdict, dataclass, field
from math import isfinite, log
from typing import Annotated, Any

import numpy as np
from pydantic import Strict

from specpair.speculation.sampling import full_logits
from specpair.speculation.sampling.sampling import Row
from specpair.speculation.sampling.top_logits import TopLogits

MOST_LOGPROBS = 20  # likeliest tokens that a request may ask for
DIGITS = 6  # decimals; a float32 row knows no more


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log probability of one committed token, and those of the likeliest tokens at its position."""

    token: int = field(metadata={"ge": 0, "description": "The token that was committed."})
    logprob: float = field(metadata={"le": 0.0, "allow_inf_nan": False, "description": "Its log probability."})
    # JSON has no tuples: strict models would take an array for a list only.
    top: list[Annotated[tuple[int, float], Strict(False)]] = field(
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
