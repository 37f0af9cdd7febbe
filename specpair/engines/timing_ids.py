"""Which tokens to feed where only the time of a pass matters."""

from random import Random


def timing_ids(size: int, count: int) -> list[int]:
    """`count` ids below `size`, the same in each call, as mixed as those of a text.

    In a model with experts, equal tokens would all go to the same few, and a pass over them would take less than one
    over a draft.
    """
    return Random(0).choices(range(size), k=count)
