"""The shape of a tree of tokens, from the distances of its nodes to their parents, as a draft and an entry have them.

Each is given for each of the nodes, in their order. A distance that leads out of the tree, to the last token before it,
makes a root.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def depths(parents: Sequence[int]) -> list[int]:
    """How many nodes the path to each has, itself included."""
    found: list[int] = []
    for at, back in enumerate(parents):
        found.append(1 if back > at else found[at - back] + 1)
    return found


def leaves(parents: Sequence[int]) -> list[int]:
    """The indices of the nodes that no other follows."""
    followed = {at - back for at, back in enumerate(parents)}
    return [at for at in range(len(parents)) if at not in followed]


def paths(parents: Sequence[int]) -> NDArray[np.bool_]:
    """The nodes on the path to each, itself included: row i, of shape (nodes,), is that of node i."""
    found = np.eye(len(parents), dtype=np.bool_)
    for at, back in enumerate(parents):
        if back <= at:
            found[at] |= found[at - back]
    return found
