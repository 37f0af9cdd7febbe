"""Recomputing: generated tokens are fed in pieces that leave the same KV entries as decoding did (`even_width`)."""

from collections.abc import Sequence

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from tests.verifier_server.engine.bench import Bench, plain

SCRIPT = Script(seed=3)
PROMPT = [256, *range(20)]
TEXT = plain(SCRIPT, PROMPT, 40)


class Even(ScriptedBackend):
    """Records what its passes feed."""

    def __init__(self, even_width: int | None, slots: int) -> None:
        self.fed_pieces: list[tuple[int, int]] = []
        super().__init__(SCRIPT, slots=slots, max_batch_tokens=64)
        self.even_width = even_width

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.fed_pieces += [(entry.start, len(entry.tokens)) for entry in batch]
        return super()._forward(batch)


def pieces(backend: Even) -> list[int]:
    """The widths of the pieces fed since the last call; they must have no gap."""
    read, backend.fed_pieces = backend.fed_pieces, []
    ends = [start + width for start, width in read]
    assert [start for start, _ in read] == [0, *ends[:-1]]
    return [width for _, width in read]


@pytest.mark.parametrize(("even_width", "widths"), [(8, [21, 8, 8, 8, 6]), (64, [21, 30]), (None, [51])])
def test_committed_tokens_of_a_new_session_are_fed_in_pieces(even_width: int | None, widths: list[int]) -> None:
    backend = Even(even_width, slots=2)
    bench = Bench(backend=backend)
    session = bench.open(PROMPT)
    session.resume(TEXT[:30])
    assert bench.verify(session, len(PROMPT) + 30).tokens == TEXT[30:31]
    assert pieces(backend) == widths


@pytest.mark.parametrize(("even_width", "widths"), [(8, [21, 8, 8, 4]), (None, [41])])
def test_a_session_whose_slot_was_taken_is_fed_in_pieces(even_width: int | None, widths: list[int]) -> None:
    backend = Even(even_width, slots=1)
    bench = Bench(backend=backend)
    session = bench.open(PROMPT)
    bench.prefill(session)
    bench.verify(session, len(PROMPT) + 1, TEXT[1:19])
    bench.prefill(bench.open([256, 99]))
    assert bench.slot(session) is None
    backend.fed_pieces = []
    assert bench.verify(session, len(PROMPT) + 20).tokens == TEXT[20:21]
    assert pieces(backend) == widths
