"""Types of a row of logits: whole, or its greatest logits with the mass of the others."""

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling.top_logits import TopLogits

Logits = NDArray[np.float32]
Row = Logits | TopLogits
