"""The passes in which a prompt is read, and how much of a kept text they may start from.

Where the last bits of a pass depend on its width (`Backend.wide_pass`), the end of a prompt is read in a narrow pass.
What is before it is read in wide passes, or in another narrow one if it is short. If the same prompt comes again, only
its end is read, by the same kernels. The next turn of a chat starts behind the answer before it, and reads what is new.
"""

from collections.abc import Sequence
from typing import NamedTuple

from specpair.engines.backend import Backend


class Reading(NamedTuple):
    """The tokens of a slot from `begin` up to `end` were read as the end of a prompt of `end` tokens.

    What is before them was generated, or belongs to an earlier reading.
    """

    begin: int
    end: int


def prompt_pass(backend: Backend, held: int, end: int, unread: int, most: int) -> int:
    """How many tokens the next pass of a slot feeds.

    `held`: tokens that the slot holds.
    `end`: tokens of the prompt.
    `unread`: tokens to feed, those behind the prompt included.
    `most`: tokens for which the pass has room.
    """
    wide, last = backend.wide_pass, _last_pass(backend, end)
    if wide is None or held >= last or unread < wide:
        return most
    left = last - held
    if left <= most:
        return left
    # A narrow pass before the last one would compute these tokens otherwise than a reading that starts elsewhere.
    most = min(most, left - wide) if left >= 2 * wide else most
    return most // backend.reuse_step * backend.reuse_step or most


def unchanged(backend: Backend, readings: Sequence[Reading], common: int, end: int) -> int:
    """How many of the first `common` tokens of a slot are what the passes of a new prompt would compute, or were
    generated.

    `readings`: of the slot, in order.
    `common`: tokens that the slot shares with the prompt.
    `end`: tokens of the prompt.

    If the prompt differs from the slot's text within a reading, the bits are those of a prompt that was read from the
    beginning of that reading on. If it goes on behind it, tokens were generated there, which are taken as they are.
    """
    common = common // backend.reuse_step * backend.reuse_step
    wide = backend.wide_pass
    inside = next((each for each in reversed(readings) if each.begin < common), None)
    if wide is None or inside is None or common > inside.end:
        return common
    theirs, ours = (_narrow_from(backend, wide, inside.begin, each) for each in (inside.end, end))
    if theirs != ours:
        common = min(common, theirs, ours)
    return ours - wide if 0 < ours - common < wide else common


def readings_with(readings: Sequence[Reading], common: int, end: int) -> list[Reading]:
    """The readings of a slot that keeps its first `common` tokens, and in which a prompt of `end` tokens is read."""
    kept = [each for each in readings if each.begin < common]
    if kept and common <= kept[-1].end:
        return [*kept[:-1], Reading(kept[-1].begin, end)]
    return [*kept, Reading(common, end)] if common < end else kept


def _narrow_from(backend: Backend, wide: int, begin: int, end: int) -> int:
    """Where the narrow passes of a prompt of `end` tokens start that is read from `begin` on."""
    last = _last_pass(backend, end)
    return last if last - begin >= wide else begin


def _last_pass(backend: Backend, end: int) -> int:
    """Where the last pass of a prompt of `end` tokens starts."""
    return max(0, end - backend.reuse_rest) // backend.reuse_step * backend.reuse_step
