"""The draft model at work: several continuations in one pass, no token computed twice, and its own context outgrown."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import EngineFailure, Entry, Logits, OutOfRoom
from backends.scripted import Script, ScriptedBackend
from drafters.draft_model import ModelDrafter
from speculation.acceptance.draft_probs import drawn_from, normalised, propose
from speculation.drafts.tree import Prediction
from speculation.sampling.sampling import Sampling, choose
from tests.drafter_client.support import PROMPT, drafts_of, plain

GREEDY, WARM = Sampling(), Sampling(seed=9, temperature=0.8)
FILTERED = Sampling(seed=3, temperature=1.3, top_k=20, top_p=0.9)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
LONG = np.random.default_rng(5).integers(0, 256, 40).tolist()


def _tokens(drafter: ModelDrafter, text: Sequence[int], count: int) -> list[int]:
    return [draft.token for draft in drafts_of(drafter, text, count)]


def _look(drafter: ModelDrafter, text: Sequence[int], *tails: Sequence[int]) -> list[Prediction]:
    return drafter.expand(text, tails, True).predictions


def _expected(text: Sequence[int], sampling: Sampling = GREEDY, script: Script = Script()) -> Prediction:
    """What the model says behind a text, looked up without any rows."""
    logits = ScriptedBackend(script).logits_after(text)
    token = choose(logits, sampling, len(text))
    odds = np.exp((logits.astype(np.float64)) / (1.0 if sampling.greedy else sampling.temperature))
    logits[token] = -np.inf
    return Prediction(token, float(odds[token] / odds.sum()), choose(logits, sampling, len(text)))


def _same(found: Prediction, expected: Prediction) -> bool:
    confident = found.confidence == pytest.approx(expected.confidence, rel=1e-4)
    return (found.token, found.runner_up) == (expected.token, expected.runner_up) and confident


@SAMPLINGS
def test_drafts_are_what_the_model_would_say_by_itself(sampling: Sampling) -> None:
    expected = plain(ScriptedBackend(), PROMPT, 12, sampling)
    assert _tokens(ModelDrafter(ScriptedBackend(), sampling), PROMPT, 12) == expected


@SAMPLINGS
def test_a_prediction_is_the_choice_its_probability_and_the_second_choice(sampling: Sampling) -> None:
    """The second choice is made under the same noise: what the verifier says where it finds the first less likely."""
    drafter = ModelDrafter(ScriptedBackend(), sampling)
    text = list(PROMPT)
    for _ in range(20):
        (found,) = _look(drafter, text, [])
        assert _same(found, _expected(text, sampling))
        text.append(found.token)


def test_second_choices_are_named_only_where_they_are_wanted() -> None:
    drafter = ModelDrafter(ScriptedBackend(), GREEDY)
    (found,) = drafter.expand(PROMPT, [[]], False).predictions
    assert found == (*_look(drafter, PROMPT, [])[0][:2], None, None)


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("has_heads", [False, True], ids=["rows", "heads"])
def test_a_draft_that_is_drawn_is_drawn_from_what_is_told_with_it(sampling: Sampling, has_heads: bool) -> None:
    drafter = ModelDrafter(ScriptedBackend(has_heads=has_heads), sampling, draws=True)
    text = list(PROMPT)
    for _ in range(20):
        (found,) = drafter.expand(text, [[]], False).predictions
        assert found.probs == propose(ScriptedBackend().logits_after(text), sampling)
        assert found.token == drawn_from(found.probs, sampling.seed, len(text))
        assert found.confidence == normalised(found.probs)[found.token]
        text.append(found.token)
    if not sampling.greedy:
        assert text[len(PROMPT) :] != plain(ScriptedBackend(), PROMPT, 20, sampling), "with noise of its own"


def test_a_second_choice_is_never_the_first_however_narrow_the_choice() -> None:
    """All other tokens are ruled out by top-k; the second choice is one of them all the same."""
    sampling = Sampling(seed=1, temperature=1.0, top_k=1)
    drafter = ModelDrafter(ScriptedBackend(Script(sharpness=1.0)), sampling)
    for tail in ([], [1], [2, 3]):
        (found,) = _look(drafter, PROMPT, tail)
        assert found.runner_up is not None and found.runner_up != found.token


def test_several_continuations_take_one_pass() -> None:
    backend = ScriptedBackend(rows=4)
    drafter = ModelDrafter(backend, GREEDY)
    assert drafter.width == 4
    (first,) = _look(drafter, PROMPT, [])
    assert first.runner_up is not None
    passes, fed = backend.passes, backend.fed
    tails = [[first.token], [first.runner_up], [7], [8]]
    expansion = drafter.expand(PROMPT, tails, True)
    assert [_same(*pair) for pair in zip(expansion.predictions, [_expected(PROMPT + t) for t in tails], strict=True)]
    assert (backend.passes - passes, backend.fed - fed, expansion.read) == (1, 4, 4)


def test_an_engine_that_cannot_copy_follows_one_continuation() -> None:
    drafter = ModelDrafter(ScriptedBackend(rows=4, can_copy=False), GREEDY)
    assert drafter.width == 1
    text = list(PROMPT)
    for tail in ([1], [2], [1, 2], [1, 3], []):
        assert _same(_look(drafter, text, tail)[0], _expected(text + tail))


@pytest.mark.parametrize("rows", [1, 4])
def test_no_token_is_computed_twice_while_all_drafts_stand(rows: int) -> None:
    backend = ScriptedBackend(rows=rows)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for _ in range(5):
        text += _tokens(drafter, text, 3)
    assert len(text) == len(PROMPT) + 15
    assert backend.fed == len(text) - 1  # the last draft of all is not fed yet
    assert backend.passes == 15


@pytest.mark.parametrize("rows", [1, 4])
def test_drafts_ahead_of_the_text_are_not_computed_again_when_it_reaches_them(rows: int) -> None:
    """The text comes token by token while the draft lies eight tokens ahead."""
    backend = ScriptedBackend(rows=rows)
    drafter = ModelDrafter(backend, GREEDY)
    ahead = _tokens(drafter, PROMPT, 8)
    fed = backend.fed
    for stood in range(1, 9):
        (found,) = _look(drafter, PROMPT + ahead[:stood], ahead[stood:])
        ahead.append(found.token)
    assert ahead == plain(ScriptedBackend(), PROMPT, 16)
    assert backend.fed - fed == 8


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_correction_costs_what_it_changes_and_no_more(rows: int) -> None:
    backend = ScriptedBackend(rows=rows)
    drafter = ModelDrafter(backend, GREEDY)
    drafts = _tokens(drafter, PROMPT, 6)
    fed = backend.fed
    corrected = [*PROMPT, *drafts[:2], 255 - drafts[2]]
    again = _tokens(drafter, corrected, 4)
    assert again == plain(ScriptedBackend(), corrected, 4)
    assert backend.fed - fed == 1 + 3  # the correction, then all drafts but the last


def test_a_continuation_that_was_prepared_costs_nothing_again_when_it_is_taken() -> None:
    backend = ScriptedBackend(rows=3)
    drafter = ModelDrafter(backend, GREEDY)
    (first,) = _look(drafter, PROMPT, [])
    main, other = [first.token], [int(first.runner_up or 0)]
    for _ in range(3):  # side by side, token by token
        tails = [list(main), list(other)]
        for tail, found in zip((main, other), _look(drafter, PROMPT, *tails), strict=True):
            tail.append(found.token)
    fed = backend.fed
    taken = PROMPT + other[:1]
    (found,) = _look(drafter, taken, other[1:])
    assert backend.fed - fed == 1  # the newest token; nothing of what was prepared
    assert _same(found, _expected(PROMPT + other))


def test_a_continuation_that_forks_off_another_is_copied_up_to_there() -> None:
    backend = ScriptedBackend(rows=2)
    drafter = ModelDrafter(backend, GREEDY)
    _look(drafter, PROMPT, [1, 2, 3, 4, 5])
    fed = backend.fed
    (found,) = _look(drafter, PROMPT, [1, 2, 3, 9])
    assert backend.fed - fed == 1
    assert _same(found, _expected([*PROMPT, 1, 2, 3, 9]))
    fed = backend.fed
    _look(drafter, PROMPT, [1, 2, 3, 4, 5, 6])
    assert backend.fed - fed == 1, "what it forked off is still there"


def test_the_row_that_was_not_used_for_longest_makes_room() -> None:
    backend = ScriptedBackend(rows=2)
    drafter = ModelDrafter(backend, GREEDY)
    _look(drafter, PROMPT, [1, 1])
    _look(drafter, PROMPT, [2, 2])
    _look(drafter, PROMPT, [1, 1, 1])
    _look(drafter, PROMPT, [3, 3])  # in place of [2, 2]
    fed = backend.fed
    _look(drafter, PROMPT, [1, 1, 1, 1])
    assert backend.fed - fed == 1


def test_a_row_that_was_taken_over_lends_nothing_of_what_it_held() -> None:
    """Three rows, and room for three tokens in a pass: the first tail is read before the last is given a row."""
    drafter = ModelDrafter(ScriptedBackend(rows=3, max_batch_tokens=3), GREEDY)
    for tail in ([1, 1, 1, 1], [5], [6]):
        _look(drafter, PROMPT, tail)
    tails = [[1, 9, 9], [7, 7], [1, 1, 1, 2]]
    for tail, found in zip(tails, _look(drafter, PROMPT, *tails), strict=True):
        assert _same(found, _expected(PROMPT + tail))


def test_what_was_read_is_told() -> None:
    backend = ScriptedBackend(rows=3, max_batch_tokens=16)
    drafter = ModelDrafter(backend, GREEDY)
    read = 0
    for text, tails in ((PROMPT, [[]]), (PROMPT, [[1], [2]]), (PROMPT + LONG, [[]]), (PROMPT + LONG, [[1], [1, 2]])):
        read += drafter.expand(text, tails, True).read
        assert read == backend.fed


def test_committed_text_that_was_not_drafted_is_taken_in_at_once() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    _look(drafter, PROMPT, [])
    passes, fed = backend.passes, backend.fed
    _look(drafter, PROMPT + LONG, [])
    assert (backend.passes - passes, backend.fed - fed) == (1, len(LONG))


def test_the_same_question_twice_computes_the_last_token_only() -> None:
    backend = ScriptedBackend()
    drafter = ModelDrafter(backend, GREEDY)
    first = _look(drafter, PROMPT, [])
    fed = backend.fed
    assert _look(drafter, PROMPT, []) == first
    assert backend.fed - fed == 1


def test_a_prompt_wider_than_a_batch_is_fed_in_pieces() -> None:
    backend = ScriptedBackend(max_batch_tokens=8)
    prompt = PROMPT + LONG
    assert _tokens(ModelDrafter(backend, GREEDY), prompt, 2) == plain(ScriptedBackend(), prompt, 2)
    assert backend.fed == len(prompt) + 1
    assert backend.passes <= -(-len(prompt) // 4) + 1  # pieces of half a batch: beside it there is room for drafts


@SAMPLINGS
@pytest.mark.parametrize("context", [8, 16, 31])
def test_a_text_that_outgrows_the_draft_context_is_drafted_on(context: int, sampling: Sampling) -> None:
    backend = ScriptedBackend(context_length=context)
    drafter = ModelDrafter(backend, sampling)
    text = list(PROMPT) + LONG
    for _ in range(12):
        drafts = _tokens(drafter, text, 1)
        assert drafts == plain(ScriptedBackend(), text, 1, sampling)  # four tokens decide, the window holds more
        text += drafts
    assert max(map(backend.length, range(backend.rows))) <= context


def test_a_window_that_slid_is_not_computed_anew_every_time() -> None:
    backend = ScriptedBackend(context_length=40)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for _ in range(40):
        text += _tokens(drafter, text, 3)
    slides = 1 + (len(text) - 40) // 17
    assert backend.fed <= len(text) + slides * 20


def test_several_continuations_outgrow_the_context_together() -> None:
    backend = ScriptedBackend(rows=3, context_length=24)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for number in range(60):
        tails = [[], [number], [number, 1, 2]]
        for tail, found in zip(tails, _look(drafter, text, *tails), strict=True):
            assert _same(found, _expected(text + tail))
        text.append(number)


class _Failing(ScriptedBackend):
    """Fails once, at a pass of one's choice, and loses the rows as the contract says."""

    def __init__(self, at: int, error: Exception, **options: int) -> None:
        super().__init__(**{"rows": 2, **options})
        self.fails_at, self._error = at, error

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes == self.fails_at:
            self.fails_at = -1
            raise self._error
        return super()._forward(batch)


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_after_a_failed_pass_the_row_is_filled_anew(at: int) -> None:
    drafter = ModelDrafter(_Failing(at, EngineFailure("out of luck"), max_batch_tokens=4), GREEDY)
    with pytest.raises(EngineFailure, match="out of luck"):
        _tokens(drafter, PROMPT, 4)
    assert _tokens(drafter, PROMPT, 4) == plain(ScriptedBackend(), PROMPT, 4)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_after_a_failed_pass_over_several_rows_all_are_filled_anew(at: int) -> None:
    drafter = ModelDrafter(_Failing(at, EngineFailure("out of luck")), GREEDY)

    def side_by_side() -> None:
        for depth in range(1, 5):
            _look(drafter, PROMPT, [1] * depth, [2] * depth)

    with pytest.raises(EngineFailure):
        side_by_side()
    for tails in ([[1, 1], [2, 2]], [[1], [1, 2]]):
        for tail, found in zip(tails, _look(drafter, PROMPT, *tails), strict=True):
            assert _same(found, _expected(PROMPT + tail))


class _Shared(ScriptedBackend):
    """Rows that share so many cells: what two of them have in common by copying takes room once."""

    def __init__(self, cells: int, **options: int) -> None:
        super().__init__(**options)
        self._cells = cells
        self.refusals = 0

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        after = {number: tuple(held) for number, held in enumerate(self._held)}
        for entry in batch:
            after[entry.row] = (*after[entry.row][: entry.start], *entry.tokens)
        taken = {held[:end] for held in after.values() for end in range(1, len(held) + 1)}
        if len(taken) > self._cells:
            self.refusals += 1
            raise OutOfRoom(f"the cache has {self._cells} cells")
        return super()._forward(batch)


def test_room_that_dead_continuations_take_is_won_back() -> None:
    """By turns three short continuations and a long one, for which there is room when the short ones are gone."""
    backend = _Shared(len(PROMPT) + 30, rows=3)
    drafter = ModelDrafter(backend, GREEDY)
    text = list(PROMPT)
    for number in range(12):
        branches, deepest = ((0, 50, 100), 6) if number % 2 else ((0,), 18)
        for depth in range(1, deepest + 1):
            tails = [[number + branch] * depth for branch in branches]
            for tail, found in zip(tails, _look(drafter, text, *tails), strict=True):
                assert _same(found, _expected(text + tail))
        text.append(200 + number)
    assert 0 < backend.refusals <= 5


def test_no_room_at_all_is_an_error() -> None:
    drafter = ModelDrafter(_Shared(len(PROMPT) - 1, rows=2), GREEDY)
    with pytest.raises(OutOfRoom):
        _look(drafter, PROMPT, [])


@pytest.mark.parametrize("length", [60, 95, 320])
def test_several_continuations_of_a_long_text_find_their_way_back_after_a_refusal(length: int) -> None:
    text = np.random.default_rng(1).integers(0, 256, length).tolist()
    backend = _Failing(-1, OutOfRoom("full"), rows=4, max_batch_tokens=64)
    drafter = ModelDrafter(backend, GREEDY)
    _look(drafter, text, [])
    backend.fails_at = backend.passes
    tails = [[1], [2], [3], [4]]
    for tail, found in zip(tails, _look(drafter, text, *tails), strict=True):
        assert _same(found, _expected(text + tail))


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_ids_beyond_the_verifiers_vocabulary_are_neither_first_nor_second_choice(sampling: Sampling) -> None:
    drafter = ModelDrafter(ScriptedBackend(), sampling, 100)
    text = list(b"!#%")
    for _ in range(30):
        (found,) = _look(drafter, text, [])
        assert found.token < 100 and (found.runner_up or 0) < 100
        logits = ScriptedBackend().logits_after(text)[:100]
        assert found.token == choose(logits, sampling, len(text))
        assert 0.0 < found.confidence <= 1.0
        text.append(found.token)


def test_ids_that_only_the_verifier_knows_are_read_as_any_other() -> None:
    drafter = ModelDrafter(ScriptedBackend(), GREEDY, 300)
    (text, tail) = ([*PROMPT, 299, 5], [280, 6])
    (found,) = _look(drafter, text, tail)
    assert _same(found, _expected([*PROMPT, 0, 5, 0, 6]))
    (found,) = _look(drafter, text + tail, [])
    assert _same(found, _expected([*PROMPT, 0, 5, 0, 6]))


_FEW = st.integers(0, 3)  # few, so that continuations share their beginnings


@pytest.mark.parametrize(("least", "most"), [(300, 512), (2, 20)], ids=["wide batches", "narrow batches"])
@settings(max_examples=150)
@given(data=st.data())
def test_what_is_expected_never_depends_on_what_was_asked_before(least: int, most: int, data: st.DataObject) -> None:
    """Random texts, growing along what was looked at or not; random sets of tails; few rows, small contexts."""
    rows, context = data.draw(st.integers(1, 6)), data.draw(st.integers(18, 48))
    batch = data.draw(st.integers(max(least, rows), most))
    sampling = data.draw(st.sampled_from([GREEDY, WARM]))
    drafter = ModelDrafter(ScriptedBackend(rows=rows, context_length=context, max_batch_tokens=batch), sampling)
    text = list(PROMPT)
    seen: list[list[int]] = [[]]
    for _ in range(data.draw(st.integers(1, 8))):
        tails: list[list[int]] = []
        for _ in range(data.draw(st.integers(1, rows))):
            stem = data.draw(st.sampled_from(seen))
            tail = [*stem[: data.draw(st.integers(0, 4))], *data.draw(st.lists(_FEW, max_size=1))]
            if tail not in tails:
                tails.append(tail)
        found = _look(drafter, text, *tails)
        for tail, prediction in zip(tails, found, strict=True):
            # The toy model looks at four tokens: a window that slid still holds those.
            assert _same(prediction, _expected(text + tail, sampling))
        seen = [[], *tails, *([*tail, each.token] for tail, each in zip(tails, found, strict=True))]
        stood = data.draw(st.sampled_from(seen))
        grown = [*stood[: data.draw(st.integers(0, 5))], *data.draw(st.lists(_FEW, max_size=3))]
        text += grown
        seen = [[], *(tail[len(grown) :] for tail in seen if tail[: len(grown)] == grown)]
