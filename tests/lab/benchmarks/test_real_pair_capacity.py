"""Many clients of one verifier with recorded texts, in virtual time."""

import random
from collections.abc import Sequence
from math import inf

import pytest

from lab.benchmarks.harness.kinds import Written
from lab.benchmarks.real_pair.capacity import clients, field
from lab.benchmarks.real_pair.capacity.__main__ import carried
from lab.benchmarks.real_pair.capacity.crowd import Crowd, Outcome, Piece
from lab.benchmarks.real_pair.draft_choices import Choices
from lab.benchmarks.real_pair.machines import DRAFTERS, TARGETS, Setting
from lab.benchmarks.real_pair.recorded import RecordedText
from specpair.speculation.sampling.sampling import Sampling

SETTING = Setting(TARGETS["8B on H100"], DRAFTERS["RTX 4070"], 0.02, 0.003)
ENDS = frozenset({900})
CHUNK, TOKENS = 512, 60
STEP = SETTING.target.cost.seconds([(1, 0)])


class Knows:
    """Choices of a draft model that is always right behind the text itself."""

    def __init__(self, whole: Sequence[int]) -> None:
        self._whole = [*whole]

    def after(self, length: int, tail: Sequence[int]) -> Choices:
        at = length + len(tail)
        right = [*tail] == self._whole[length:at] and at < len(self._whole)
        return Choices([self._whole[at] if right else 850, 851, 852], [0.9, 0.05, 0.01])


def _pieces(count: int = 3) -> list[Piece]:
    pieces = []
    for number in range(count):
        rng = random.Random(number)
        prompt = [rng.randrange(800) for _ in range(20)]
        tokens = [*(rng.randrange(800) for _ in range(TOKENS - 1)), 900]
        text = RecordedText("code", prompt, Sampling(), Written(tokens, [5] * TOKENS, [(0.9, 0.05)] * TOKENS))
        pieces.append(Piece(text, Knows([*prompt, *tokens]), [True] * TOKENS))
    return pieces


def _outcome(form: str, count: int) -> Outcome:
    pieces = _pieces()
    crowd = Crowd(pieces, count)
    clients.FORMS[form](crowd, SETTING, clients.numberings_of(pieces, ENDS), CHUNK)
    assert crowd.done
    return crowd.outcome


@pytest.mark.parametrize("count", [1, 6])
def test_plain_clients_get_a_token_with_each_pass(count: int) -> None:
    found = _outcome("alone", count)
    text = TOKENS * STEP
    assert 0.6 / STEP < found.rate / count <= TOKENS / (text + SETTING.rtt)  # some passes read prompts


@pytest.mark.parametrize("form", ["chains", "trees", "fused"])
@pytest.mark.parametrize("count", [1, 6])
def test_good_drafts_bring_more_than_the_target_alone(form: str, count: int) -> None:
    assert _outcome(form, count).rate > 1.2 * _outcome("alone", count).rate


def test_round_of_right_drafts_brings_all_of_them_and_one_more() -> None:
    crowd = Crowd(_pieces(), 1)
    field.write(crowd, SETTING.target.cost, SETTING.same_box, SETTING.rtt, 3, CHUNK)
    took = STEP + 3 * SETTING.same_box.seconds([(1, 0)])
    assert 3.0 < crowd.outcome.slow * took <= 4.0 * TOKENS / (TOKENS - 4)


def test_client_that_is_slow_for_a_time_counts_for_as_long_as_that_took() -> None:
    crowd = Crowd(_pieces(), 2)
    fast, slow = crowd.clients
    for client in crowd.clients:
        client.next()
        client.learnt(40, 0.0)
    crowd.passed(1.0, 1, 1)
    for client, each in ((fast, 0.01), (slow, 0.03)):
        for token in range(1, 2 * crowd.counted):
            if client.learnt(1, token * each):
                client.next()
    assert crowd.done and crowd.outcome.rate == pytest.approx(2 / 0.02)


def test_clients_begin_at_places_that_divide_the_texts_evenly() -> None:
    crowd = Crowd(_pieces(), 6)
    first = [client.next() for client in crowd.clients]
    assert [each.begins for each in first] == [0, TOKENS // 2] * 3
    assert [client.next().piece for client in crowd.clients[:3]] == [first[2].piece, first[2].piece, first[4].piece]


def test_carried_clients_lie_between_those_that_were_measured() -> None:
    found = {count: Outcome(rate, 0.0, 0.0, 0.0, 0.0) for count, rate in ((1, 100.0), (10, 900.0), (40, 1600.0))}
    assert carried(found, 90.0) == pytest.approx(10.0)
    assert 10.0 < (carried(found, 60.0) or inf) < 40.0
    assert carried(found, 39.0) is None and carried(found, 101.0) == 0.0
