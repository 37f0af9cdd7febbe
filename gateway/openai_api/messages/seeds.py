"""Seeds: one of any size, and those of several choices, made into the seeds that the noise takes."""

import hashlib

from specpair.speculation.sampling import gumbel


def seed_of(given: int, choice: int = 0) -> int:
    """The seed of a request's choice, from 0 to below `gumbel.SEED_LIMIT`.

    Choice 0 has the given seed itself where it lies in that range. Any other is a hash of seed and choice.
    """
    if choice == 0 and 0 <= given < gumbel.SEED_LIMIT:
        return given
    digest = hashlib.blake2b(f"{given}/{choice}".encode(), digest_size=8, person=b"specpair-seed").digest()
    return int.from_bytes(digest, "big") % gumbel.SEED_LIMIT
