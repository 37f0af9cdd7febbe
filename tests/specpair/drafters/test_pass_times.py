"""A draft model's passes are timed when it is loaded: to draft a token, and to read one of a prompt."""

from collections.abc import Sequence

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.warm_engine import pass_times
from specpair.engines.backend import Entry, Logits

FIRST, TOKEN, READ = 0.5, 0.02, 0.004  # seconds: more in the first pass of each kind, to draft, to read a token


class Timed(ScriptedBackend):
    """A pass over one token takes `TOKEN`, over more `READ` for each; the first of each kind `FIRST` more."""

    now = 0.0

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        (entry,) = batch
        kind = len(entry.tokens) > 1
        self.now += READ * len(entry.tokens) if kind else TOKEN
        self.now += 0.0 if kind in self.seen else FIRST
        self.seen.add(kind)
        return super()._forward(batch)

    seen: set[bool]


@pytest.mark.parametrize("how", [{}, {"max_batch_tokens": 4}, {"context_length": 9}, {"max_rollback": 0}], ids=str)
def test_the_shortest_passes_count_and_the_slot_is_empty_afterwards(how: dict[str, int]) -> None:
    backend = Timed(Script(), **how)  # type: ignore[arg-type]
    backend.seen = set()
    times = pass_times(backend, lambda: backend.now)
    assert (times.token, times.read) == pytest.approx((TOKEN, READ))
    assert backend.length(0) == 0
    assert backend.now < 2.0, "a slow engine is not timed for long"
