"""The client's prediction of the output is followed, and found again behind insertions, deletions and replacements."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.predicted_output import PredictedOutput

TOKENS = st.lists(st.integers(0, 5), max_size=40)


def source(count: int, seed: int = 0, kinds: int = 400) -> list[int]:
    """Tokens as frequent as in a program: a few are everywhere, most are rare."""
    rng = random.Random(seed)
    return [min(int(rng.paretovariate(0.6)), kinds) for _ in range(count)]


def right(prediction: Sequence[int], output: Sequence[int]) -> float:
    """Share of the output's tokens that the prediction proposed, each behind all before it."""
    predicted, hits = PredictedOutput(prediction, 0), 0
    for token in output:
        hits += [each for each, _ in predicted.predict()] == [token]
        predicted.extend([token])
    return hits / len(output)


def edited(tokens: Sequence[int], kind: str, every: int, length: int, seed: int) -> tuple[list[int], int]:
    """`tokens` with an edit every so many tokens, and how many edits there are. Inserted tokens are new ones."""
    rng, result, edits, at = random.Random(seed), list[int](), 0, 0
    for at in range(0, len(tokens), every):
        piece = list(tokens[at : at + every])
        if at:
            new = [1000 + rng.randrange(50) for _ in range(length)]
            edits += 1
            piece = {"insert": [*new, *piece], "delete": piece[length:], "replace": [*new, *piece[length:]]}[kind]
        result += piece
    return result, edits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 3, 12, 40])
@pytest.mark.parametrize("kind", ["insert", "delete", "replace"])
def test_every_kind_of_edit_is_bridged(kind: str, length: int, seed: int) -> None:
    """Not proposed rightly: the inserted tokens, and a few tokens behind each edit."""
    tokens = source(1200, seed)
    output, edits = edited(tokens, kind, 60, length, seed)
    new = 0 if kind == "delete" else edits * length
    assert right(tokens, output) > (len(output) - new - 4 * edits) / len(output)


NAMES = {"other": [7, 7], "longer": [900, 901, 902], "shorter": [900], "prefixed": [900, 7, 8]}


@pytest.mark.parametrize("new", NAMES.values(), ids=NAMES)
def test_a_name_that_is_changed_throughout_costs_once(new: list[int]) -> None:
    old, places = [7, 8], range(20, 600, 15)
    rest = [token for token in source(600, 2) if token not in (7, 8)]
    tokens, output = (
        [each for at, token in enumerate(rest) for each in ([*name, token] if at in places else [token])]
        for name in (old, new)
    )
    assert right(tokens, output) > (len(output) - 12) / len(output)


def test_a_name_that_is_kept_from_some_place_on_is_proposed_again() -> None:
    rest = source(600, 2)
    tokens = [each for at, token in enumerate(rest) for each in ([700, token] if at % 15 == 5 else [token])]
    output = [900 if token == 700 and at < 300 else token for at, token in enumerate(tokens)]
    assert right(tokens, output) > (len(output) - 6) / len(output)


def test_a_changed_name_is_drafted_through() -> None:
    """Not only the next token: a whole path behind the output goes through several places of it."""
    line, new = [1, 2, 700, 3, 4, 5, 6], [1, 2, 900, 901, 3, 4, 5, 6]
    predicted = PredictedOutput(line * 20, 0)
    predicted.extend(new * 3)
    path: list[int] = []
    for _ in range(3 * len(new)):
        ((token, _),) = predicted.predict(path)
        path.append(token)
    assert path == new * 3


def test_blocks_that_changed_places_are_found() -> None:
    a, b, c = source(300, 1), source(300, 2), source(300, 3)
    assert right([*a, *b, *c], [*b, *a, *c]) > 0.93


def test_an_equal_text_is_proposed_whole() -> None:
    tokens = source(500)
    assert right(tokens, tokens) == 1.0


def test_a_tail_continues_as_the_output_would() -> None:
    tokens = source(200, 5)
    output, _ = edited(tokens, "replace", 20, 3, 5)
    predicted = PredictedOutput(tokens, 3)
    for at in range(0, len(output) - 30, 7):
        for end in range(at, at + 30):  # a path grows token by token
            grown = predicted.predict(output[at:end])
            other = PredictedOutput(tokens, 0)
            other.extend(output[:end])
            assert [token for token, _ in grown] == [token for token, _ in other.predict()]
        assert len(predicted) == 3 + at
        predicted.extend(output[at : at + 7])


@given(TOKENS, TOKENS, TOKENS)
def test_only_tokens_of_prediction_and_output_are_proposed(
    prediction: list[int], output: list[int], tail: list[int]
) -> None:
    predicted = PredictedOutput(prediction, 2)
    predicted.extend(output)
    assert len(predicted) == 2 + len(output)
    first = predicted.predict(tail)
    assert all(token in [*prediction, *output] and 0.0 < chance < 1.0 for token, chance in first)
    assert predicted.predict(tail) == first, "asking changes nothing"
    whole = PredictedOutput(prediction, 0)
    for token in output:
        whole.extend([token])
    assert whole.predict(tail) == first, "the output may come in pieces of any length"


@given(TOKENS, TOKENS)
def test_nothing_is_proposed_beyond_the_end(prediction: list[int], rest: list[int]) -> None:
    predicted = PredictedOutput(prediction, 0)
    predicted.extend(prediction)
    assert predicted.predict() == PredictedOutput([], 0).predict(rest) == []


def test_the_chance_is_the_share_of_right_tokens() -> None:
    tokens = source(800, 3)
    good, bad = PredictedOutput(tokens, 0), PredictedOutput(tokens, 0)
    good.extend(tokens[:600])
    assert [chance > 0.98 for _, chance in good.predict()] == [True]
    bad.extend(source(600, 9))
    assert all(chance < 0.4 for _, chance in bad.predict())


@pytest.mark.parametrize("kinds", [3, 400])
def test_the_work_of_a_token_does_not_grow_with_the_prediction(kinds: int) -> None:
    """Counted in compared places, whatever the output is; with few kinds of tokens every place matches."""

    class Counting(PredictedOutput):
        compared = 0

        def _match(self, end: int, recent: Sequence[int]) -> int:
            self.compared += 1
            return super()._match(end, recent)

    predicted = Counting(source(20_000, 1, kinds), 0)
    predicted.extend(source(500, 2, kinds))
    assert predicted.compared <= 500 * 24


def test_agreeing_tokens_that_could_not_be_others_say_nothing() -> None:
    prediction = [*range(40)]
    predicted = PredictedOutput(prediction, 0)
    found = [predicted.predict(prediction[:20], forced)[0] for forced in (0, 10, 24, 50)]
    assert [token for token, _ in found] == [prediction[20]] * 4
    chances = [chance for _, chance in found]
    assert chances[0] > chances[1] > chances[2] == chances[3]
