"""The draft model at work: it computes no token twice, follows every correction, and outgrows its own context."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contract import EngineFailure, Entry, Logits
from backends.scripted import END, Script, ScriptedBackend
from drafter_client.drafter import ModelDrafter
from speculation.sampling import Sampling, choose
from tests.drafter_client.support import PROMPT, plain

GREEDY = Sampling()
LONG = np.random.default_rng(5).integers(0, 256, 40).tolist()


def _k(count: int) -> Callable[[Sequence[float]], bool]:
    return lambda confidences: len(confidences) < count


def _tokens(drafter: ModelDrafter, text: Sequence[int], count: int) -> list[int]:
    return [draft.token for draft in drafter.draft(text, _k(count))]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=9, temperature=0.8)], ids=["greedy", "warm"])
def test_drafts_are_what_the_model_would_say_by_itself(sampling: Sampling) -> None:
    expected = plain(ScriptedBackend(), PROMPT, 12, sampling)
    assert _tokens(ModelDrafter(ScriptedBackend(), sampling), PROMPT, 12) == expected


def test_no_token_is_computed_twice_while_all_drafts_stand() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for _ in range(5):
        text += _tokens(drafter, text, 3)
    assert len(text) == len(PROMPT) + 15
    assert backend.fed == len(text) - 1  # the last draft of all is not fed yet
    assert backend.passes == 15


def test_a_correction_costs_what_it_changes_and_no_more() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    drafts = _tokens(drafter, PROMPT, 6)
    fed = backend.fed
    corrected = [*PROMPT, *drafts[:2], 255 - drafts[2]]
    again = _tokens(drafter, corrected, 4)
    assert again == plain(ScriptedBackend(), corrected, 4)
    assert backend.fed - fed == 1 + 3  # the correction, then all drafts but the last


def test_committed_text_that_was_not_drafted_is_taken_in_at_once() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    _tokens(drafter, PROMPT, 1)
    passes, fed = backend.passes, backend.fed
    _tokens(drafter, PROMPT + LONG, 1)
    assert (backend.passes - passes, backend.fed - fed) == (1, len(LONG))


def test_the_same_question_twice_computes_the_last_token_only() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    first = _tokens(drafter, PROMPT, 1)
    fed = backend.fed
    assert _tokens(drafter, PROMPT, 1) == first
    assert backend.fed - fed == 1


def test_nothing_asked_nothing_computed() -> None:
    backend = ScriptedBackend()
    assert ModelDrafter(backend, GREEDY).draft(PROMPT, lambda _: False) == []
    assert backend.passes == 0


@settings(max_examples=40)
@given(data=st.data())
def test_drafts_never_depend_on_what_was_drafted_before(data: st.DataObject) -> None:
    backend = ScriptedBackend(context_length=24, max_batch_tokens=7)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for _ in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.integers(0, 5))
        drafts = _tokens(drafter, text, count)
        fresh = ModelDrafter(ScriptedBackend(context_length=200), GREEDY)
        # The toy model looks at four tokens: a window that slid still holds those.
        assert drafts == _tokens(fresh, text, count)
        stood = data.draw(st.integers(0, len(drafts)))
        text += [*drafts[:stood], data.draw(st.integers(0, 255))]


def test_the_confidence_is_the_models_own_probability() -> None:
    backend = ScriptedBackend()
    for sampling, temperature in ((GREEDY, 1.0), (Sampling(seed=2, temperature=0.5), 0.5)):
        (draft,) = ModelDrafter(backend, sampling).draft(PROMPT, _k(1))
        logits = backend.logits_after(PROMPT).astype(np.float64) / temperature
        assert draft.token == choose(backend.logits_after(PROMPT), sampling, len(PROMPT))
        assert draft.confidence == pytest.approx(np.exp(logits[draft.token]) / np.exp(logits).sum(), rel=1e-4)


def test_drafting_is_asked_about_draft_by_draft_with_the_confidences_so_far() -> None:
    asked: list[list[float]] = []

    def another(confidences: Sequence[float]) -> bool:
        asked.append(list(confidences))
        return len(confidences) < 3

    drafts = ModelDrafter(ScriptedBackend(), GREEDY).draft(PROMPT, another)
    confidences = [draft.confidence for draft in drafts]
    assert asked == [confidences[:count] for count in range(4)]


def test_nothing_is_drafted_behind_an_end_token() -> None:
    script = Script(seed=4, end_bias=6.0)
    expected = plain(ScriptedBackend(script), PROMPT, 100)
    assert expected[-1] == END
    assert _tokens(ModelDrafter(ScriptedBackend(script), GREEDY), PROMPT, 100) == expected


def test_a_prompt_wider_than_a_batch_is_fed_in_pieces() -> None:
    backend = ScriptedBackend(max_batch_tokens=8)
    prompt = PROMPT + LONG
    assert _tokens(ModelDrafter(backend, GREEDY), prompt, 2) == plain(ScriptedBackend(), prompt, 2)
    assert backend.fed == len(prompt) + 1
    assert backend.passes == -(-len(prompt) // 8) + 1


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=9, temperature=0.8)], ids=["greedy", "warm"])
@pytest.mark.parametrize("context", [8, 16, 31])
def test_a_text_that_outgrows_the_draft_context_is_drafted_on(context: int, sampling: Sampling) -> None:
    backend = ScriptedBackend(context_length=context)
    drafter = ModelDrafter(backend, sampling)
    text = list(PROMPT) + LONG
    for _ in range(12):
        drafts = _tokens(drafter, text, 3)
        assert drafts == plain(ScriptedBackend(), text, 3, sampling)  # four tokens decide, the window holds more
        text += drafts
    assert backend.length(0) <= context


def test_a_window_that_slid_is_not_computed_anew_every_time() -> None:
    backend = ScriptedBackend(context_length=40)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for _ in range(40):
        text += _tokens(drafter, text, 3)
    slides = 1 + (len(text) - 40) // 20
    assert backend.fed <= len(text) + slides * 20


@pytest.mark.parametrize("drafts", [8, 16, 40])
def test_more_drafts_than_the_context_holds_and_all_of_them_rejected(drafts: int) -> None:
    backend = ScriptedBackend(context_length=8)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for correction in range(4):
        assert len(_tokens(drafter, text, drafts)) == drafts
        text.append(correction)  # shorter than where the window had slid to
        assert _tokens(drafter, text, 1) == plain(ScriptedBackend(), text, 1)


class _Failing(ScriptedBackend):
    """Fails once, at a pass of one's choice, and loses the row as the contract says."""

    def __init__(self, at: int) -> None:
        super().__init__(max_batch_tokens=4)
        self._at = at

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes == self._at:
            self._at = -1
            raise EngineFailure("out of luck")
        return super()._forward(batch)


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_after_a_failed_pass_the_row_is_filled_anew(at: int) -> None:
    drafter = ModelDrafter(_Failing(at), GREEDY)
    with pytest.raises(EngineFailure):
        _tokens(drafter, PROMPT, 4)
    assert _tokens(drafter, PROMPT, 4) == plain(ScriptedBackend(), PROMPT, 4)
