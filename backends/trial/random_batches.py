"""Random batches that the contract allows, to try engines with."""

from collections.abc import Iterator

import numpy as np

from specpair.engines.backend import Backend, Entry


def random_batches(backend: Backend, turns: int, seed: int = 1) -> Iterator[list[Entry]]:
    """Yields `turns` batches over slots that grow, roll back a few tokens, or start again; ids from 2 to 259.

    Run each batch before taking the next one, which depends on what the slots then hold.
    """
    random = np.random.default_rng(seed)
    while turns:
        batch, room = [], backend.max_batch_tokens
        for slot in random.permutation(backend.slots)[: random.integers(1, backend.slots + 1)].tolist():
            held = backend.length(slot)
            anywhere = random.random() < 0.2
            start = int(random.integers(0, held + 1)) if anywhere else max(0, held - int(random.integers(0, 6)))
            most = min(backend.context_length - start, room)
            if most:
                count = int(random.integers(1, min(most, random.choice([1, 2, 9, 30, 64])) + 1))
                tokens = random.integers(2, 260, count).tolist()
                batch.append(Entry(slot, start, tokens, int(random.integers(0, count + 1))))
                room -= count
        if batch:
            yield batch
            turns -= 1
