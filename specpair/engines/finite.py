"""Finds passes whose numbers overflowed: NaN or infinity among the keys and values of a slot."""

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np

from specpair.speculation.sampling.top_logits import Logits, TopLogits

_LOOKED_AT = 8  # logits of a row: a NaN or an infinity in the model's last layer reaches every one of them


def overflowed(rows: Logits | Sequence[TopLogits]) -> bool:
    """Whether any of these rows of one slot comes from NaN or infinity in the model.

    Looks at a few logits of a row, in time that does not depend on the vocabulary: 5 microseconds for a few rows. -inf
    alone is no fault: some models mask ids. A single bad logit elsewhere is found where a token is chosen.
    """
    if isinstance(rows, np.ndarray):
        few = rows[:, :_LOOKED_AT]
        return bool(few.size) and not bool((few < inf).all())  # nor NaN
    return any(not isfinite(top.log_sum) or not (len(top.logits) and top.logits[0] < inf) for top in rows)
