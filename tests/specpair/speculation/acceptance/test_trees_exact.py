"""Siblings drawn without replacement, judged one after the other: the committed token is a sample of the target."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, normalised, propose
from specpair.speculation.acceptance.judge import Rule, coin, decide, explain, judge, residual
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.acceptance.token_sources import TokenSource, marks_of, rounds
from specpair.speculation.draft import Draft, DraftToken
from specpair.speculation.sampling.row_changes import ProcessedRows
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation import processed
from tests.specpair.speculation.drafted_decoding import IDS, drafter_row, is_the_targets, target_row
from tests.specpair.speculation.trees import paths, trees

distributions = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)
SETTINGS = pytest.mark.parametrize("sampling", [Sampling(0, 1.0), Sampling(0, 1.2, 3, 0.95)], ids=str)


def without(weights: Weights, token: int) -> Weights:
    """What the next draft token for the same position is drawn from, once `token` was; empty: there is no other."""
    return normalised({each: weight for each, weight in weights.items() if each != token})


def outcome(p: NDArray[np.float64], q: Weights, siblings: int) -> NDArray[np.float64]:
    """The distribution of the committed token: the sum over all draws of siblings, and over their coins."""
    p = p / p.sum()
    if not siblings or not q:
        return p
    found = np.zeros(len(p))
    for draft, chance in q.items():
        accepted = min(1.0, p[draft] / chance)
        found[draft] += chance * accepted
        if accepted < 1.0:
            behind = outcome(residual(p, q), without(q, draft), siblings - 1)
            found += chance * (1.0 - accepted) * behind
    return found


@given(distributions, distributions, st.integers(1, 4))
def test_the_committed_token_has_the_targets_distribution(p: list[int], q: list[int], siblings: int) -> None:
    """SpecInfer's theorem for draws without replacement, summed up without chance."""
    target = np.array(p, float) / sum(p)
    drafted = {token: weight / sum(q) for token, weight in enumerate(q) if weight}
    np.testing.assert_allclose(outcome(target, drafted, siblings), target, atol=1e-12)


@given(distributions, distributions, st.integers(0, 2**53 - 1))
def test_siblings_are_judged_in_order_by_coins_of_their_own(p: list[int], q: list[int], seed: int) -> None:
    target = np.array(p, float) / sum(p)
    left: Weights = normalised({token: float(weight) for token, weight in enumerate(q) if weight})
    siblings: list[tuple[int, Weights]] = []
    while left:
        token = drawn_from(left, seed, 5, len(siblings))
        siblings.append((token, left))
        left = without(left, token)
    p_left, expected = target, None
    for number, (token, weights) in enumerate(siblings):
        p_left = p_left / p_left.sum()
        if coin(seed, 5, number) < p_left[token] / weights[token]:
            expected = token
            break
        p_left = residual(p_left, weights)
    found = decide(target, siblings, seed, 5)
    assert target[found] > 0 and (expected is None or found == expected)
    assert sorted(token for token, _ in siblings) == [token for token, weight in enumerate(q) if weight]


def drawn_tree(before: int, position: int, sampling: Sampling, widths: Sequence[int]) -> Draft:
    """Siblings behind the text, and siblings behind each of these, and so on: `widths` of them at each depth."""
    made: list[DraftToken] = []
    level = [(-1, before)]
    for depth, width in enumerate(widths):
        nodes = []
        for parent, token in level:
            left = propose(drafter_row(token), sampling)
            for number in range(width):
                if not left:
                    break
                draft = drawn_from(left, sampling.seed, position + depth, number)
                nodes.append((len(made), draft))
                made.append(DraftToken(draft, probs=left, parent=len(made) - parent))
                left = without(left, draft)
        level = nodes
    return Draft(position, tuple(made))


@pytest.mark.slow
@SETTINGS
@pytest.mark.parametrize("widths", [[2], [3, 2], [IDS, 1]], ids=str)
@pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.COUPLED])
def test_text_with_drawn_trees_is_a_sample_of_the_target(
    sampling: Sampling, widths: list[int], strategy: Strategy
) -> None:
    found: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(3000):
        seeded, tokens = Sampling(seed, sampling.temperature, sampling.top_k, sampling.top_p), [0]
        while len(tokens) <= 2:
            tree = drawn_tree(tokens[-1], len(tokens), seeded, widths)
            rows = [target_row([*tokens, *path][-1]) for path in paths(tree.tokens)]
            rulings = judge(tree.tokens, rows, Rule(strategy, seeded), len(tokens), set())
            accepted += sum(each.accepted for each in rulings)
            tokens += [each.token for each in rulings]
        found[tuple(tokens[1:3])] += 1
    assert is_the_targets(found, sampling, 2)
    assert accepted > 1500


def test_the_decision_on_a_sibling_names_its_own_coin() -> None:
    row, first, second = target_row(0), {1: 1.0}, {2: 1.0}
    seen = set()
    for seed in range(200):
        rule = Rule(Strategy.PROBABILISTIC, Sampling(seed, 1.0))
        draft = (DraftToken(1, probs=first), DraftToken(2, probs=second, parent=2))
        rulings = judge(draft, [row] * 3, rule, 3, set())
        decision = explain(rule, rulings, draft, [row] * 3, 3)[0]
        number = 1 if decision.verdict == "accepted" and decision.draft == 2 else 0
        assert decision.drawn == coin(seed, 3, number)
        seen.add((decision.verdict, decision.draft))
    assert seen == {("accepted", 1), ("accepted", 2), ("rejected", 1)}


FEW_IDS = 4
END = 3
SAMPLINGS = st.builds(Sampling, st.integers(0, 99), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0, 2]))


def after(path: Sequence[int]) -> Logits:
    """The target's logits behind a path: they depend on all of it."""
    return np.random.default_rng([7, len(path), *path]).standard_normal(FEW_IDS).astype(np.float32)


def rows_of(draft: Draft) -> list[Logits]:
    return [after(path) for path in paths(draft.tokens)]


def plain(sampling: Sampling, position: int, ends: set[int]) -> list[int]:
    """The target's text without drafts, as far as any tree of the tests reaches."""
    text: list[int] = []
    while len(text) < 9 and not (text and text[-1] in ends):
        text.append(choose(after(text), sampling, position + len(text)))
    return text


@given(trees(9, FEW_IDS), SAMPLINGS, st.sampled_from([Strategy.COUPLED, Strategy.DETERMINISTIC]), st.booleans())
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


@given(trees(9, FEW_IDS), SAMPLINGS)
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


@given(trees(9, FEW_IDS), st.sampled_from(sorted(processed.SETTINGS)))
def test_a_row_is_processed_with_the_tokens_of_its_path(draft: Draft, name: str) -> None:
    sampling, prompt = processed.SETTINGS[name], [0, 2, 1]
    processors = processed.text_processors(sampling, len(prompt), FEW_IDS)
    assert processors is not None
    processors.commit(prompt)
    rows = ProcessedRows(processors, rows_of(draft), draft.ids, [each.parent for each in draft])
    for at in reversed(range(len(rows))):  # in any order
        path = paths(draft.tokens)[at]
        np.testing.assert_allclose(rows[at], processed.process(after(path), sampling, prompt, path), atol=1e-5)
