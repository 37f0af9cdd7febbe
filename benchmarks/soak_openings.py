"""What drafters ask for: prompts that mostly begin alike, and every way of sampling."""

import random
from typing import Any

from benchmarks.soak_caller import Soak


def opening(soak: Soak, rng: random.Random) -> dict[str, Any]:
    """A prefill. Most prompts begin like those of other drafters, and some are the same."""
    options: dict[str, Any] = {"self_continue": rng.random() < 0.5}
    kind = rng.random()
    if kind < 0.1:
        options["prompt"] = f"def function_{rng.randrange(5)}(x):"
    else:
        common = soak.rng("common", rng.randrange(4))
        length = 0 if kind < 0.3 else rng.randint(20, 200)
        tail = [] if length and kind < 0.4 else [rng.randrange(256) for _ in range(rng.randint(1, 30))]
        options["prompt_ids"] = [common.randrange(256) for _ in range(200)][:length] + tail
    if rng.random() < 0.9:
        options["max_tokens"] = rng.randint(1, 150)
    warm = rng.random() < 0.6
    options["temperature"] = rng.choice([0.5, 1.0, 2.0]) if warm else 0.0
    options["top_k"] = rng.choice([0, 0, 5, 40]) if warm else 0
    options["top_p"] = rng.choice([1.0, 0.9]) if warm else 1.0
    if rng.random() < 0.8:
        options["seed"] = rng.randrange(1000)
    return options
