"""The position rule: one comparison that makes retries, stale drafts and overlapping drafts all safe.

A verify request states `position`, the number of tokens that the client KNOWS to be committed, and carries its whole
draft from there on. The draft is compared with what is committed by now. Only the part beyond that needs the model.
"""

from collections.abc import Sequence

from speculation.acceptance.strategies import common_prefix
from speculation.errors import PositionBeyondCommitted, PositionInsidePrompt


def fresh_drafts(
    tokens: Sequence[int], prompt_len: int, finished: bool, position: int, drafts: Sequence[int]
) -> list[int] | None:
    """The part of `drafts`, a draft from `position` on, that goes beyond the committed `tokens` (prompt included).

    An empty list: the target decodes one token. None: the committed tokens already hold the whole answer. `finished`:
    whether the text has ended.
    Raises PositionInsidePrompt and PositionBeyondCommitted, both with the number of committed tokens.
    """
    check_position(len(tokens), prompt_len, position)
    known = tokens[position:]
    if finished or common_prefix(known, drafts) < len(known):
        return None  # finished, rejected, or contained with at least one more token committed
    return list(drafts[len(known) :])


def check_position(total: int, prompt_len: int, position: int) -> None:
    """Raise PositionInsidePrompt or PositionBeyondCommitted for a position at which no response can begin.

    `total` tokens are committed, of which the first `prompt_len` are the prompt. Both errors carry `total`.
    """
    if position < prompt_len:
        raise PositionInsidePrompt(
            f"position {position} lies inside the prompt of {prompt_len} tokens", total_tokens=total
        )
    if position > total:
        raise PositionBeyondCommitted(
            f"position {position} lies beyond the {total} committed tokens: "
            "send the last position a reply gave, with the whole draft from there",
            total_tokens=total,
        )
