"""A draft step for several texts at once, in shared passes of their engine."""

from collections.abc import Sequence

from specpair.drafters.base import Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.shared_engine import EngineView
from specpair.engines.backend import Backend, Entry, Rows, TopLogitsSpec
from specpair.engines.errors import BackendError


def expand_together(asked: Sequence[tuple[ModelDrafter, Sequence[int], Sequence[int]]]) -> list[Expansion]:
    """A draft step for several texts whose drafters share an engine: as `expand`, in shared passes.

    `asked`: drafter, text and tail of each. Raises what the engine raises; then none of them has its step.
    """
    steps = [drafter.passes(text, [tail], 0) for drafter, text, tail in asked]
    wanted = [next(each) for each in steps]
    found: list[Expansion | None] = [None] * len(asked)
    while left := [at for at, each in enumerate(found) if each is None]:
        for at, rows in _run([(at, asked[at][0].backend, wanted[at]) for at in left]):
            try:
                wanted[at] = steps[at].throw(rows) if isinstance(rows, BackendError) else steps[at].send(rows)
            except StopIteration as over:
                found[at] = over.value
    return [each for each in found if each is not None]


def _run(
    calls: Sequence[tuple[int, Backend, tuple[list[Entry], list[TopLogitsSpec]]]],
) -> list[tuple[int, Sequence[Rows] | BackendError]]:
    """Run as many of the calls as fit into one pass. Returns the result or the error of each."""
    room = calls[0][1].max_batch_tokens
    fit: list[tuple[int, tuple[EngineView, list[Entry], list[TopLogitsSpec]]]] = []
    for at, view, (batch, specs) in calls:
        tokens = sum(len(entry.tokens) for entry in batch)
        if not fit or tokens <= room:
            assert isinstance(view, EngineView)
            fit.append((at, (view, batch, specs)))
            room -= tokens
    try:
        brought = EngineView.extend_together([call for _, call in fit])
    except BackendError as error:
        return [(at, error) for at, _ in fit]
    return [(at, rows) for (at, _), rows in zip(fit, brought, strict=True)]
