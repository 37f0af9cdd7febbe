"""The position rule: one comparison that makes retries, stale guesses and overlapping guesses all safe.

A guess says `position`, how many tokens the client KNOWS to be committed, and carries everything it expects
from there on. It is compared with what is committed by now, and only the part beyond that needs the model.
"""

from collections.abc import Sequence

from speculation.acceptance.strategies import common_prefix
from speculation.errors import PositionBeyondCommitted, PositionInsidePrompt


def fresh_drafts(
    tokens: Sequence[int], prompt_len: int, finished: bool, position: int, drafts: Sequence[int]
) -> list[int] | None:
    """The part of `drafts`, guessed from `position` on, that goes beyond the committed `tokens` (prompt included).

    It may be empty: one plain step is asked for. None when the record holds the whole answer.
    Raises PositionInsidePrompt and PositionBeyondCommitted, both carrying the number of committed tokens.
    """
    check_position(len(tokens), prompt_len, position)
    known = tokens[position:]
    if finished or common_prefix(known, drafts) < len(known):
        return None  # ended, contradicted, or contained with at least one token more to tell
    return list(drafts[len(known) :])


def check_position(total: int, prompt_len: int, position: int) -> None:
    """Raise PositionInsidePrompt or PositionBeyondCommitted for a place where no answer can begin.

    `total` tokens are committed, the first `prompt_len` of them the prompt; both errors carry `total`.
    """
    if position < prompt_len:
        raise PositionInsidePrompt(
            f"position {position} lies inside the prompt of {prompt_len} tokens", total_tokens=total
        )
    if position > total:
        raise PositionBeyondCommitted(
            f"position {position} lies beyond the {total} committed tokens: "
            "send the last position a reply gave, with the whole guess from there",
            total_tokens=total,
        )
