"""Random draft trees that hold some of a text."""

import random
from collections.abc import Sequence

from specpair.speculation.draft import Draft, DraftToken


def random_tree(chance: random.Random, position: int, right: Sequence[int], ids: int, wrong: int = 4) -> Draft:
    """A tree of the tokens `right`, which follow one another, and of up to `wrong` others below `ids` anywhere among
    them, in any order in which each token stands behind the one that it follows."""
    followed = [-1]  # for each node, the index of the node that it follows; the first is the text
    tokens = [0]
    for token in right:
        followed.append(len(tokens) - 1)
        tokens.append(token)
    for _ in range(chance.randint(0, wrong)):
        parent = chance.randrange(len(tokens))
        taken = {token for token, each in zip(tokens, followed, strict=True) if each == parent}
        followed.append(parent)
        tokens.append(chance.choice([each for each in range(ids) if each not in taken]))
    placed, made = {0: -1}, list[DraftToken]()
    while len(placed) < len(tokens):
        ready = [at for at, each in enumerate(followed) if at not in placed and each in placed]
        node = chance.choice(ready)
        placed[node] = len(made)
        made.append(DraftToken(tokens[node], parent=len(made) - placed[followed[node]]))
    return Draft(position, tuple(made))
