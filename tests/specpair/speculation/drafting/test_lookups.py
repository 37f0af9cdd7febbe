"""Lookups under what limits a text: only what may stand there, and what alone can stand there without a lookup."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.predicted_output import PredictedOutput
from specpair.speculation.drafting.text_lookup import TextLookup
from specpair.speculation.drafting.tree import DraftTree, Proposal
from specpair.speculation.sampling.row_changes import LogitProcessor, ProcessorChain, following
from specpair.speculation.sampling.sampling import Logits

PREDICTED = [10, 11, 12, 13, 14, 15]


class Ascending(LogitProcessor):
    """Even tokens and odd ones take turns, and 100 alone may follow 13, as a grammar could have it."""

    limits = True

    def __init__(self) -> None:
        self.output: list[int] = []

    def push(self, token: int) -> None:
        self.output.append(token)

    def pop(self, token: int) -> None:
        assert self.output.pop() == token

    def process(self, row: Logits) -> None:
        raise AssertionError("no row is asked for")

    def allows(self, token: int) -> bool:
        return token % 2 == len(self.output) % 2

    def only(self) -> int | None:
        return 100 if self.output[-1:] == [13] else None


def limited() -> ProcessorChain | None:
    return following([Ascending()], prompt_len=2, limits=True)


def found(tail: list[int]) -> list[tuple[int, DraftSource]]:
    lookups = Lookups(2, prediction=PREDICTED, limits=limited())
    lookups.follow([1, 2])
    return [(each.token, each.source) for each in lookups.found(DraftTree(frozenset()).root, tail)]


def test_what_cannot_stand_there_is_not_found() -> None:
    assert found([]) == [(10, DraftSource.PREDICTION)]
    assert found([10]) == [(11, DraftSource.PREDICTION)]
    assert found([11, 10, 11]) == [], "12 would come, and even tokens stand elsewhere"


def test_the_only_token_that_can_stand_there_needs_no_lookup() -> None:
    assert found([10, 11, 12, 13]) == [(100, DraftSource.GRAMMAR)]


def test_a_path_goes_on_with_what_is_certain_and_then_looks_up() -> None:
    text = CommittedText([1, 2], frozenset(), Lookups(2, prediction=[*PREDICTED[:4], 100, 17], limits=limited()))
    assert text.look_up(6, (), always=True)
    main = text.tree.main()
    assert [each.token for each in main] == [10, 11, 12, 13, 100, 17]
    assert [each.source for each in main][4:] == [DraftSource.GRAMMAR, DraftSource.PREDICTION]
    chances = text.chances(main)
    assert chances[5] == chances[4], "it is as likely as what stands before it"


@pytest.mark.parametrize("sure", [True, False])
def test_lookup_and_draft_model_are_branches_of_one_tree(sure: bool) -> None:
    text = CommittedText([1, 2], frozenset(), Lookups(2, prediction=[*range(10, 40)]))
    text.commit(range(10, 20))
    text.grow(text.tree.root, Proposal(7, 0.999 if sure else 0.1, 8, further=(20,)))
    first, second, *_ = text.tree.root.children or []
    assert {first.token, second.token} == {7, 20} and (first.token == 7) == sure
    assert text.look_up_beside(4) == sure and not text.look_up_beside(4)
    if sure:
        assert [each.token for each in text.tree.root.children or []] == [7, 20, 8]
        assert (child := (second.children or [])[0]).token == 21 and child.source is DraftSource.PREDICTION
        assert text.look_up_beside(5), "it goes on from where it ended"
        assert len(text.tree.tail((child.children or [])[0]) or []) == 3


def test_a_proposal_that_cannot_stand_there_has_no_chance() -> None:
    text = CommittedText([1, 2], frozenset(), Lookups(2, limits=limited()))
    text.grow(text.tree.root, Proposal(7, 0.99))
    assert [each.confidence for each in text.tree.main()] == [0.0]
    drawn = CommittedText([1, 2], frozenset(), Lookups(2, limits=limited()))
    drawn.grow(drawn.tree.root, Proposal(7, 0.99, probs={7: 1.0}))
    assert [each.confidence for each in drawn.tree.main()] == [0.99], "to leave a drawn one out would be a bias"


class Keys(Ascending):
    """Behind an even token, its successor alone may stand, up to the next multiple of 10."""

    forces = True

    def allows(self, token: int) -> bool:
        return True

    def only(self) -> int | None:
        return self.output[-1] + 1 if self.output and self.output[-1] % 10 else None


def test_what_is_found_behind_forced_tokens_is_less_likely() -> None:
    """Nine tokens of the text agree with the prediction, eight of which the grammar forced; so do they in a draft."""
    prediction = [*range(11, 21), 77]

    def chance(limits: ProcessorChain | None, committed: int) -> float:
        text = CommittedText([1, 2], frozenset(), Lookups(2, prediction=prediction, limits=limits))
        text.commit(prediction[:committed])
        text.look_up(11 - committed, (), always=True)
        last = text.tree.main()[-1]
        assert (last.token, last.source) == (77, DraftSource.PREDICTION)
        return last.confidence

    for committed in (1, 5, 10):
        assert chance(following([Keys()], 2, limits=True), committed) < chance(None, committed)


TOKENS = st.lists(st.integers(0, 3), max_size=60)


def lookup_in(tokens: Sequence[int]) -> TextLookup:
    lookup = TextLookup()
    lookup.extend(tokens)
    return lookup


def predicted(lookup: TextLookup, tail: Sequence[int] = (), most: int = 1) -> list[int]:
    return [token for token, _ in lookup.predict(tail, most=most)]


def random_tokens(count: int, kinds: int) -> list[int]:
    """Pseudo-random tokens."""
    state, tokens = 1, []
    for _ in range(count):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        tokens.append((state >> 16) % kinds)
    return tokens


def places(text: list[int], word: Sequence[int]) -> list[int]:
    """Where the word ends in the text with something behind it."""
    return [at for at in range(len(word), len(text)) if text[at - len(word) : at] == [*word]]


@given(TOKENS, st.lists(st.integers(0, 3), max_size=8), st.integers(1, 3))
def test_predictions_followed_the_longest_matches(text: list[int], tail: list[int], most: int) -> None:
    """Against a search of all places. The tail is asked for at once, and token by token as a draft grows."""
    whole = [*text, *tail]
    matching = [whole[-size:] for size in range(len(whole), 0, -1) if places(text, whole[-size:])]
    lookup = lookup_in(text)
    found = lookup.predict(tail, most=most)
    grown = lookup_in(text)
    for end in range(len(tail)):
        grown.predict(tail[:end])
    assert grown.predict(tail, most=most) == found
    tokens = [token for token, _ in found]
    follow = {text[at] for word in matching for at in places(text, word)}
    assert len({*tokens}) == len(tokens) == min(most, len(follow))
    for rank, token in enumerate(tokens):  # each followed the longest match that was followed by no other but those
        behind = next(new for word in matching if (new := {text[at] for at in places(text, word)} - {*tokens[:rank]}))
        assert token in behind
    assert all(0.0 < chance < 1.0 for _, chance in found)
    assert lookup.predict([], most=most) == lookup_in(text).predict([], most=most), "a tail leaves nothing behind"


def test_confidence_is_the_share_of_right_predictions() -> None:
    repeating = list(range(100, 120)) * 30
    ((token, chance),) = lookup_in(repeating).predict()
    assert token == repeating[len(repeating) % 20] and chance > 0.9
    ((_, chance),) = lookup_in(random_tokens(600, kinds=8)).predict()  # every pair occurs, and predicts nothing
    assert chance < 0.3


def test_matching_tokens_that_could_not_be_others_say_nothing() -> None:
    lookup = lookup_in([9, 1, 2, 3, 4, 5, 6, 7, 50])
    found = [lookup.predict([9, 1, 2, 3, 4, 5, 6, 7], forced)[0] for forced in (0, 4, 7, 20)]
    assert [token for token, _ in found] == [50] * 4
    chances = [chance for _, chance in found]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[1] > chances[2] == chances[3]


SOME_TOKENS = st.lists(st.integers(0, 5), max_size=40)


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


@given(SOME_TOKENS, SOME_TOKENS, SOME_TOKENS)
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


def test_the_chance_is_the_share_of_right_tokens() -> None:
    tokens = source(800, 3)
    good, bad = PredictedOutput(tokens, 0), PredictedOutput(tokens, 0)
    good.extend(tokens[:600])
    assert [chance > 0.98 for _, chance in good.predict()] == [True]
    bad.extend(source(600, 9))
    assert all(chance < 0.4 for _, chance in bad.predict())
