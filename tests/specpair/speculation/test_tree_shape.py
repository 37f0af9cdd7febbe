"""The shape of a tree, compared with paths that are walked from each node to its root."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import depths, leaves, paths


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    return [draw(st.integers(1, at + 1)) for at in range(draw(st.integers(0, 12)))]


def walked(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node -= parents[node]
    return path[::-1]


@given(trees())
def test_paths_depths_and_leaves_are_those_of_a_walk(parents: list[int]) -> None:
    each = [walked(parents, node) for node in range(len(parents))]
    assert [np.flatnonzero(row).tolist() for row in paths(parents)] == each
    assert depths(parents) == [len(path) for path in each]
    assert leaves(parents) == [node for node in range(len(parents)) if not any(node in path[:-1] for path in each)]
