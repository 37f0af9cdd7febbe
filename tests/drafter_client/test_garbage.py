"""A text leaves nothing to the garbage collector, which would stop all texts of a service to look for it."""

import gc
from pathlib import Path

import pytest

from drafter_client import DraftModel, Options, Pair
from tests.drafter_client.support import Verifier

OURS = ("drafter_client.", "specpair.speculation.drafts.", "specpair.drafters.")


@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_a_text_leaves_no_cycles(verifier: Verifier, lockstep: bool) -> None:
    options = Options(max_tokens=60, temperature=0.8, seed=3, lockstep=lockstep, draft_n=6)
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        pair.generate("def f(x):", options).read()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            pair.generate("def f(x):", options).read()
            gc.collect()
            left = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not [name for name in sorted(left) if name.startswith(OURS)]
