"""Lookups under what limits a text: only what may stand there, and what alone can stand there without a lookup."""

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.tree import DraftTree, Proposal
from specpair.speculation.sampling.processors import EndsLater
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


def test_a_proposal_that_cannot_stand_there_has_no_chance() -> None:
    text = CommittedText([1, 2], frozenset(), Lookups(2, limits=limited()))
    text.grow(text.tree.root, Proposal(7, 0.99))
    assert [each.confidence for each in text.tree.main()] == [0.0]
    drawn = CommittedText([1, 2], frozenset(), Lookups(2, limits=limited()))
    drawn.grow(drawn.tree.root, Proposal(7, 0.99, probs={7: 1.0}))
    assert [each.confidence for each in drawn.tree.main()] == [0.99], "to leave a drawn one out would be a bias"


def test_processors_that_only_change_logits_limit_nothing() -> None:
    assert following([EndsLater({5}, 3)], 2, limits=True) is not None
    assert Lookups(2, limits=following([], 2, limits=True)).allows(5, [])
    late = Lookups(2, limits=following([EndsLater({5}, 3)], 2, limits=True))
    late.follow([1, 2])
    assert not late.allows(5, [7, 7]) and late.allows(5, [7, 7, 7]) and late.allows(6, [])


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
