"""Texts by a rule: the target's rows, also behind trees of draft tokens, and how often each choice is right."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.fleet.text import OTHERS, Agreeing, Choices, RuleTarget, Text, next_token
from lab.simulator.virtual.agreement import constant
from specpair.engines.backend import Entry


@given(st.data())
def test_rows_behind_a_tree_are_those_of_its_paths(data: st.DataObject) -> None:
    prompt = data.draw(st.lists(st.integers(0, 255), min_size=3, max_size=8))
    nodes = data.draw(st.lists(st.integers(0, 255), max_size=6))
    parents = [data.draw(st.integers(1, 1 + at)) for at in range(len(nodes))]
    target = RuleTarget(slots=1, context_length=64)
    pending = data.draw(st.integers(1, len(prompt) - 1))
    target.extend([Entry(0, 0, prompt[:pending], pending)])
    tokens = [*prompt[pending:], *nodes]
    first = data.draw(st.integers(0, len(tokens)))
    (rows,) = target.extend([Entry(0, pending, tokens, first, parents)])
    texts = [prompt[: at + 1] for at in range(pending, len(prompt))]
    for token, parent in zip(nodes, parents, strict=True):
        texts.append([*texts[-parent], token])
    assert [int(row.argmax()) for row in rows] == [next_token(*text[-2:]) for text in texts[first:]]


def test_each_choice_is_right_as_often_as_the_draft_model_says() -> None:
    text = Text([1, 2], random.Random)
    choices, right = Choices(text, constant(0.6)), [0] * (1 + len(OTHERS))
    for at in range(2, 6002):
        proposal = choices.proposal(at, 0, len(OTHERS))
        (truth,) = text.tokens(at, at + 1)
        assert proposal.parts == OTHERS and len({*proposal.tokens}) == 1 + len(OTHERS)
        if truth in proposal.tokens:
            right[proposal.tokens.index(truth)] += 1
    assert [each / 6000 for each in right] == pytest.approx([0.6, *(0.4 * each for each in OTHERS)], abs=0.015)


def test_behind_another_choice_that_is_right_the_draft_goes_on() -> None:
    text = Text([1, 2], random.Random)
    drafter, truth = Agreeing(Choices(text, constant(0.0))), text.tokens(2, 40)
    for at in range(30):
        (proposal,) = drafter.expand([1, 2], [truth[:at]], len(OTHERS)).proposals
        assert truth[at] != proposal.token
        if truth[at] in proposal.tokens:
            (behind,) = drafter.expand([1, 2], [truth[: at + 1]], len(OTHERS)).proposals
            (wrong,) = drafter.expand([1, 2], [[*truth[:at], proposal.token]], len(OTHERS)).proposals
            assert behind.tokens != wrong.tokens
