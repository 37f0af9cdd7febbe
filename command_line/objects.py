"""The objects of a program that has loaded its models."""

import gc


def keep_loaded_objects() -> None:
    """Exclude the objects that exist now from garbage collection.

    There are about a hundred thousand of them, and most are needed until the end. To look at them all takes up to a
    tenth of a second, in which no token is drafted and no request is answered.
    """
    gc.freeze()
