"""A tree is judged as the target would go through it: the same text as without drafts, by the row of each token."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.judge import Rule, explain, judge
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.acceptance.token_details import TokenSource, marks_of, rounds
from specpair.speculation.draft import Draft, DraftToken
from specpair.speculation.sampling.row_changes import ProcessedRows
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation import processed
from tests.specpair.speculation.trees import paths, trees

IDS = 4
END = 3
WARM = Sampling(0, 1.0)
SAMPLINGS = st.builds(Sampling, st.integers(0, 99), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0, 2]))


def after(path: Sequence[int]) -> Logits:
    """The target's logits behind a path: they depend on all of it."""
    return np.random.default_rng([7, len(path), *path]).standard_normal(IDS).astype(np.float32)


def rows_of(draft: Draft) -> list[Logits]:
    return [after(path) for path in paths(draft.tokens)]


def plain(sampling: Sampling, position: int, ends: set[int]) -> list[int]:
    """The target's text without drafts, as far as any tree of the tests reaches."""
    text: list[int] = []
    while len(text) < 9 and not (text and text[-1] in ends):
        text.append(choose(after(text), sampling, position + len(text)))
    return text


@given(trees(9, IDS), SAMPLINGS, st.sampled_from([Strategy.COUPLED, Strategy.DETERMINISTIC]), st.booleans())
def test_a_tree_gives_as_much_of_the_targets_own_text_as_it_holds(
    draft: Draft, sampling: Sampling, strategy: Strategy, ends_matter: bool
) -> None:
    rule, ends = Rule(strategy, effective_sampling(strategy, sampling)), {END} if ends_matter else set[int]()
    text = plain(rule.sampling, draft.position, ends)
    rulings = judge(draft.tokens, rows_of(draft), rule, draft.position, ends)

    held = max((path for path in paths(draft.tokens) if path == text[: len(path)]), key=len)
    expected = held if held and held[-1] in ends else text[: len(held) + 1]
    assert [each.token for each in rulings] == expected
    assert [each.accepted for each in rulings] == [at < len(held) for at in range(len(expected))]
    for at, each in enumerate(rulings):
        assert paths(draft.tokens)[each.row] == expected[:at], "each by the row that follows what came before"
        if each.draft is not None:
            assert draft.tokens[each.draft].token == each.token or not each.accepted
            assert paths(draft.tokens)[1 + each.draft][:-1] == expected[:at]
        else:
            assert all(path[:-1] != expected[:at] for path in paths(draft.tokens)[1:]), "nothing was drafted here"
    found = explain(rule, rulings, draft.tokens, rows_of(draft), draft.position)
    assert [each.token for each in found] == expected
    assert [each.verdict for each in found] == [
        "accepted" if each.accepted else "own" if each.draft is None else "rejected" for each in rulings
    ]


@given(trees(9, IDS), SAMPLINGS)
def test_the_marks_of_a_tree_tell_what_was_judged_and_accepted(draft: Draft, sampling: Sampling) -> None:
    rulings = judge(draft.tokens, rows_of(draft), Rule(Strategy.COUPLED, sampling), draft.position, {END})
    accepted = [each.accepted for each in rulings]
    marks = marks_of(accepted, len(draft), rulings[-1].draft is not None)
    sources = [each.source for each in marks]
    last = TokenSource.ACCEPTED if accepted[-1] else TokenSource.RECOVERED if rulings[-1].draft is not None else None
    assert sources == [*[TokenSource.ACCEPTED] * (len(rulings) - 1), last or TokenSource.BONUS]
    assert [(each.accepted, each.judged) for each in rounds(marks)] == [(sum(accepted), len(draft))]
    vain = len(draft) - sum(accepted) - (sources[-1] is TokenSource.RECOVERED)
    assert sum(each.vain for each in marks) == vain


def test_greedy_accepts_no_node() -> None:
    right = int(after([]).argmax())
    draft = Draft(3, (DraftToken((right + 1) % IDS), DraftToken(right, parent=2)))
    [ruling] = judge(draft.tokens, rows_of(draft), Rule(Strategy.GREEDY, Sampling()), 3, set())
    assert (ruling.token, ruling.accepted, ruling.row, ruling.draft) == (right, False, 0, 0)


def test_the_second_of_two_siblings_is_accepted_and_what_follows_it_judged() -> None:
    text = plain(WARM, 3, set())
    wrong = (text[0] + 1) % IDS
    draft = Draft(3, (DraftToken(wrong), DraftToken(text[0], parent=2), DraftToken(0), DraftToken(text[1], parent=2)))
    if text[1] == 0:
        draft = Draft(3, (*draft.tokens[:2], DraftToken(1), draft.tokens[3]))
    rulings = judge(draft.tokens, rows_of(draft), Rule(Strategy.COUPLED, WARM), 3, set())
    assert [(each.token, each.accepted, each.row, each.draft) for each in rulings] == [
        (text[0], True, 0, 1),
        (text[1], True, 2, 3),
        (text[2], False, 4, None),
    ]


@given(trees(9, IDS), st.sampled_from(sorted(processed.SETTINGS)))
def test_a_row_is_processed_with_the_tokens_of_its_path(draft: Draft, name: str) -> None:
    sampling, prompt = processed.SETTINGS[name], [0, 2, 1]
    processors = processed.text_processors(sampling, len(prompt), IDS)
    assert processors is not None
    processors.commit(prompt)
    rows = ProcessedRows(processors, rows_of(draft), draft.ids, [each.parent for each in draft])
    for at in reversed(range(len(rows))):  # in any order
        path = paths(draft.tokens)[at]
        np.testing.assert_allclose(rows[at], processed.process(after(path), sampling, prompt, path), atol=1e-5)


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.THRESHOLD, Strategy.PROBABILISTIC])
def test_a_chain_is_a_tree_whose_tokens_each_follow_the_one_before(strategy: Strategy) -> None:
    for seed in range(20):
        rule, draft = Rule(strategy, Sampling(seed, 1.0), 0.2), Draft.chain(3, [1, 0, 2])
        rulings = judge(draft.tokens, rows_of(draft), rule, 3, set())
        assert [each.row for each in rulings] == list(range(len(rulings)))
        assert [each.draft for each in rulings] == [*range(3), None][: len(rulings)]
