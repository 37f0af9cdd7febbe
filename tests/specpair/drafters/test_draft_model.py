"""ModelDrafter: several continuations in one pass, no token computed twice, texts longer than its context."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import CacheFull, EngineFailure
from specpair.speculation.acceptance.draft_probs import drawn_from, normalised, propose
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Sampling, choose
from tests.drafter_client.support import PROMPT, drafts_of, plain
from tests.examples import examples

GREEDY, WARM = Sampling(), Sampling(seed=9, temperature=0.8)
FILTERED = Sampling(seed=3, temperature=1.3, top_k=20, top_p=0.9)


def _tokens(drafter: ModelDrafter, text: Sequence[int], count: int) -> list[int]:
    return [draft.token for draft in drafts_of(drafter, text, count)]


def _predict(drafter: ModelDrafter, text: Sequence[int], *tails: Sequence[int]) -> list[Proposal]:
    return drafter.expand(text, tails, True).proposals


def _expected(text: Sequence[int], sampling: Sampling = GREEDY, script: Script = Script()) -> Proposal:
    """The model's proposal behind a text, computed without slots."""
    logits = ScriptedBackend(script).logits_after(text)
    token = choose(logits, sampling, len(text))
    odds = np.exp((logits.astype(np.float64)) / (1.0 if sampling.greedy else sampling.temperature))
    logits[token] = -np.inf
    return Proposal(token, float(odds[token] / odds.sum()), choose(logits, sampling, len(text)))


def _same(found: Proposal, expected: Proposal) -> bool:
    confident = found.confidence == pytest.approx(expected.confidence, rel=1e-4)
    return (found.token, found.runner_up) == (expected.token, expected.runner_up) and confident


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("has_top_logits", [False, True], ids=["rows", "top logits"])
def test_drawn_draft_token_comes_from_its_reported_distribution(sampling: Sampling, has_top_logits: bool) -> None:
    drafter = ModelDrafter(ScriptedBackend(has_top_logits=has_top_logits), sampling, draws=True)
    text = list(PROMPT)
    for _ in range(20):
        (found,) = drafter.expand(text, [[]], False).proposals
        assert found.probs == propose(ScriptedBackend().logits_after(text), sampling)
        assert found.token == drawn_from(found.probs, sampling.seed, len(text))
        assert found.confidence == normalised(found.probs)[found.token]
        text.append(found.token)
    if not sampling.greedy:
        assert text[len(PROMPT) :] != plain(ScriptedBackend(), PROMPT, 20, sampling), "drawn with separate noise"


@pytest.mark.parametrize("slots", [1, 4])
def test_accepted_draft_tokens_are_not_computed_again(slots: int) -> None:
    """The text arrives token by token while the draft is eight tokens ahead."""
    backend = ScriptedBackend(slots=slots)
    drafter = ModelDrafter(backend, GREEDY)
    ahead = _tokens(drafter, PROMPT, 8)
    fed = backend.fed
    for accepted in range(1, 9):
        (found,) = _predict(drafter, PROMPT + ahead[:accepted], ahead[accepted:])
        ahead.append(found.token)
    assert ahead == plain(ScriptedBackend(), PROMPT, 16)
    assert backend.fed - fed == 8


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_recovered_token_costs_only_the_changed_tokens(slots: int) -> None:
    backend = ScriptedBackend(slots=slots)
    drafter = ModelDrafter(backend, GREEDY)
    draft = _tokens(drafter, PROMPT, 6)
    fed = backend.fed
    recovered = [*PROMPT, *draft[:2], 255 - draft[2]]
    again = _tokens(drafter, recovered, 4)
    assert again == plain(ScriptedBackend(), recovered, 4)
    assert backend.fed - fed == 1 + 3  # the recovered token, then all draft tokens but the last


def test_forking_continuation_is_copied_up_to_the_fork() -> None:
    backend = ScriptedBackend(slots=2)
    drafter = ModelDrafter(backend, GREEDY)
    _predict(drafter, PROMPT, [1, 2, 3, 4, 5])
    fed = backend.fed
    (found,) = _predict(drafter, PROMPT, [1, 2, 3, 9])
    assert backend.fed - fed == 1
    assert _same(found, _expected([*PROMPT, 1, 2, 3, 9]))
    fed = backend.fed
    _predict(drafter, PROMPT, [1, 2, 3, 4, 5, 6])
    assert backend.fed - fed == 1, "the original continuation is still held"


class _Failing(ScriptedBackend):
    """Fails once, in the pass number `at`, and empties the slots as the contract says."""

    def __init__(self, at: int, error: Exception, **options: Any) -> None:
        super().__init__(**{"slots": 2, **options})
        self.fails_at, self._error = at, error

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes == self.fails_at:
            self.fails_at = -1
            raise self._error
        return super()._forward(batch)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_all_slots_are_refilled_after_a_failed_pass(at: int) -> None:
    drafter = ModelDrafter(_Failing(at, EngineFailure("out of luck")), GREEDY)

    def side_by_side() -> None:
        for depth in range(1, 5):
            _predict(drafter, PROMPT, [1] * depth, [2] * depth)

    with pytest.raises(EngineFailure):
        side_by_side()
    for tails in ([[1, 1], [2, 2]], [[1], [1, 2]]):
        for tail, found in zip(tails, _predict(drafter, PROMPT, *tails), strict=True):
            assert _same(found, _expected(PROMPT + tail))


class _Shared(ScriptedBackend):
    """Slots that share `cells` cells: equal prefixes take room once."""

    def __init__(self, cells: int, **options: Any) -> None:
        super().__init__(**options)
        self._cells = cells
        self.refusals = 0

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        after = {number: tuple(held) for number, held in enumerate(self.held)}
        for entry in batch:
            after[entry.slot] = (*after[entry.slot][: entry.start], *entry.tokens)
        taken = {held[:end] for held in after.values() for end in range(1, len(held) + 1)}
        if len(taken) > self._cells:
            self.refusals += 1
            raise CacheFull(f"the cache has {self._cells} cells")
        return super()._forward(batch)


def test_room_of_outdated_continuations_is_freed() -> None:
    """Alternates three short continuations with a long one, which fits only without the short ones."""
    backend = _Shared(len(PROMPT) + 30, slots=3)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for number in range(12):
        branches, deepest = ((0, 50, 100), 6) if number % 2 else ((0,), 18)
        for depth in range(1, deepest + 1):
            tails = [[number + branch] * depth for branch in branches]
            for tail, found in zip(tails, _predict(drafter, text, *tails), strict=True):
                assert _same(found, _expected(text + tail))
        text.append(200 + number)
    assert 0 < backend.refusals <= 5


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_ids_beyond_the_verifiers_vocabulary_are_never_predicted(sampling: Sampling) -> None:
    drafter = ModelDrafter(ScriptedBackend(), sampling, 100)
    text = list(b"!#%")
    for _ in range(30):
        (found,) = _predict(drafter, text, [])
        assert found.token < 100 and (found.runner_up or 0) < 100
        logits = ScriptedBackend().logits_after(text)[:100]
        assert found.token == choose(logits, sampling, len(text))
        assert 0.0 < found.confidence <= 1.0
        text.append(found.token)


def test_ids_that_only_the_verifier_knows_are_read_as_id_0() -> None:
    drafter = ModelDrafter(ScriptedBackend(), GREEDY, 300)
    (text, tail) = ([*PROMPT, 299, 5], [280, 6])
    (found,) = _predict(drafter, text, tail)
    assert _same(found, _expected([*PROMPT, 0, 5, 0, 6]))
    (found,) = _predict(drafter, text + tail, [])
    assert _same(found, _expected([*PROMPT, 0, 5, 0, 6]))


_FEW = st.integers(0, 3)  # few ids, so that continuations share prefixes


@pytest.mark.parametrize(("least", "most"), [(300, 512), (2, 20)], ids=["wide batches", "narrow batches"])
@examples(75)
@given(data=st.data())
def test_predictions_do_not_depend_on_earlier_calls(least: int, most: int, data: st.DataObject) -> None:
    """Random texts that follow an expanded tail or not; random sets of tails; few slots, small contexts."""
    rows, context = data.draw(st.integers(1, 6)), data.draw(st.integers(18, 48))
    batch = data.draw(st.integers(max(least, rows), most))
    sampling = data.draw(st.sampled_from([GREEDY, WARM, FILTERED]))
    drafter = ModelDrafter(ScriptedBackend(slots=rows, context_length=context, max_batch_tokens=batch), sampling)
    text = list(PROMPT)
    seen: list[list[int]] = [[]]
    for _ in range(data.draw(st.integers(1, 8))):
        tails: list[list[int]] = []
        for _ in range(data.draw(st.integers(1, rows))):
            stem = data.draw(st.sampled_from(seen))
            tail = [*stem[: data.draw(st.integers(0, 4))], *data.draw(st.lists(_FEW, max_size=1))]
            if tail not in tails:
                tails.append(tail)
        found = _predict(drafter, text, *tails)
        for tail, proposal in zip(tails, found, strict=True):
            # The toy model depends on four tokens, which a slid window still holds.
            assert _same(proposal, _expected(text + tail, sampling))
        seen = [[], *tails, *([*tail, each.token] for tail, each in zip(tails, found, strict=True))]
        followed = data.draw(st.sampled_from(seen))
        grown = [*followed[: data.draw(st.integers(0, 5))], *data.draw(st.lists(_FEW, max_size=3))]
        text += grown
        seen = [[], *(tail[len(grown) :] for tail in seen if tail[: len(grown)] == grown)]
