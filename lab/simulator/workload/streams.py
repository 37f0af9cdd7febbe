"""Streams of chance by name: what one consumes does not move the others."""

import random
from collections.abc import Callable


def streams(rng: random.Random) -> Callable[[str], random.Random]:
    """A function that gives the stream of a name: always from its beginning. Takes one number from `rng`."""
    seed = rng.getrandbits(64)
    return lambda name: random.Random(f"{seed}/{name}")
