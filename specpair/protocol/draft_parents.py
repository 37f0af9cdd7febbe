"""Reads the `draft_parents` of a verify request: which draft token follows which, where the draft is a tree."""

from collections.abc import Sequence

from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.strategies import Strategy


def read(sent: Sequence[int], drafts: Sequence[int], strategy: Strategy) -> Sequence[int]:
    """The `draft_parents` of a verify request with these draft tokens: for each, how many before it its parent stands.

    Raises InvalidRequest that names the item and what is wrong with it.
    """
    if len(sent) != len(drafts):
        raise InvalidRequest(
            f"draft_parents: there are {len(sent)} of them for {len(drafts)} draft_tokens: send one for each",
            param="draft_parents",
        )
    first: dict[tuple[int, int], int] = {}  # by parent and id, the index of the draft token
    for index, (token, back) in enumerate(zip(drafts, sent, strict=True)):
        if not 1 <= back <= index + 1:
            raise InvalidRequest(
                f"draft_parents.{index}: {back} is not 1 to {index + 1}: {index} draft tokens stand before this one, "
                f"and {index + 1} means that it follows the text",
                param=f"draft_parents.{index}",
            )
        other = first.setdefault((index - back, token), index)
        if other != index:
            raise InvalidRequest(
                f"draft_tokens.{index}: token {token} follows the same token as draft_tokens.{other}, which is equal: "
                "send it once",
                param=f"draft_tokens.{index}",
            )
    if not strategy.takes_trees and any(back != 1 for back in sent):
        raise InvalidRequest(
            f"draft_parents: the strategy {strategy} takes no trees: it accepts any draft token that is likely enough, "
            "so the text would depend on which of several comes first: send a chain",
            param="draft_parents",
        )
    return sent
