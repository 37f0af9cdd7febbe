"""The benchmark of exactness notices logits that depend on the width of a pass, and tells how close the tokens were."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from lab.benchmarks.exactness import DRAFTS, gap, over_copy, over_kept_prompt, with_drafts
from specpair.engines.backend import Entry, Logits

PROMPT = [256, 5, 6, 7, 8]


class MoreInWidePasses(ScriptedBackend):
    """Adds `more` to the second-best logit of position `at`, in passes of 5 tokens and more."""

    def __init__(self, at: int, more: float) -> None:
        super().__init__(Script(seed=2), slots=2, max_batch_tokens=64)
        self._at, self._more = at, more
        self.gap = np.inf  # between the best two tokens there

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        [rows] = super()._forward(batch)
        [(_, start, tokens, logits_from, _)] = batch
        row = self._at - start - logits_from
        if 0 <= row < len(rows):
            second, best = np.argsort(rows[row])[-2:]
            self.gap = float(rows[row][best] - rows[row][second])
            if len(tokens) >= 5 and start:
                rows[row][second] += self._more
        return [rows]


@pytest.mark.parametrize("at", range(len(PROMPT) + 2, len(PROMPT) + 26, 3))
def test_a_text_differs_where_a_wide_pass_prefers_another_token(at: int) -> None:
    wide = [width for width in DRAFTS for _ in range(width)][(at - len(PROMPT)) % sum(DRAFTS)] >= 4
    backend = MoreInWidePasses(at, 1000.0)
    assert gap(backend, PROMPT, 40, with_drafts) == (pytest.approx(backend.gap) if wide else None)
    assert gap(backend, PROMPT, 40, over_kept_prompt) is None
    assert backend.length(0) == backend.length(1) == 0


@pytest.mark.parametrize(("slot", "other"), [(0, over_kept_prompt), (1, over_copy)])
def test_a_text_differs_where_the_last_token_of_a_kept_prompt_is_read_otherwise(slot: int, other: Any) -> None:
    class ReadAlone(ScriptedBackend):
        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            rows = super()._forward(batch)
            if batch[0].slot == slot and len(batch[0].tokens) == 1 and batch[0].start == len(PROMPT) - 1:
                rows[0][0][100] += 1000.0
            return rows

    backend = ReadAlone(Script(seed=2), slots=2, max_batch_tokens=64)
    kept = gap(backend, PROMPT, 8, other)
    assert kept is not None and kept > 0
    backend.reuse_rest = 2  # so that two tokens are read
    assert gap(backend, PROMPT, 8, other) is None
