"""What passes cost: tried at the start within its time, then followed; widths in between on straight lines."""

from collections.abc import Sequence

import pytest

from backends.contract import Entry, Logits
from backends.scripted import ScriptedBackend
from verifier_server.pass_cost import WIDEST, PassCost, measure


class Slow(ScriptedBackend):
    """A toy whose passes take what `ms` says, on a clock of its own."""

    def __init__(self, base: float, per_token: float, max_batch_tokens: int = 64) -> None:
        super().__init__(max_batch_tokens=max_batch_tokens)
        self.base, self.per_token = base, per_token
        self.now = 0.0
        self.widths: list[int] = []

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        (entry,) = batch
        self.widths.append(len(entry.tokens))
        self.now += (self.base + self.per_token * len(entry.tokens)) / 1e3
        return super().extend(batch)


def test_an_engine_is_tried_over_all_widths_and_left_as_it_was() -> None:
    slow = Slow(20.0, 3.0)
    curve = measure(slow, lambda: slow.now).curve()
    assert curve == pytest.approx([20 + 3 * width for width in range(1, WIDEST + 1)])
    assert slow.now < 2.5
    with pytest.raises(Exception, match="row 0"):  # nothing is left of what was tried
        slow.extend([Entry(0, 1, [1], 0)])


def test_a_very_slow_engine_is_tried_just_enough_to_draw_a_line() -> None:
    slow = Slow(3000.0, 100.0)
    curve = measure(slow, lambda: slow.now).curve()
    assert slow.widths == [1, 1, 2]
    assert curve == pytest.approx([3000 + 100 * width for width in range(1, WIDEST + 1)])


def test_no_pass_is_wider_than_the_engine_takes() -> None:
    slow = Slow(20.0, 3.0, max_batch_tokens=5)
    assert len(measure(slow, lambda: slow.now).curve()) == WIDEST
    assert max(slow.widths) == 5


def test_real_passes_correct_it() -> None:
    cost = PassCost()
    cost.learn(1, 30.0)
    assert cost.curve() == []  # one width says nothing of others
    cost.learn(3, 50.0)
    assert cost.curve()[:4] == [30.0, 40.0, 50.0, 60.0]
    for _ in range(60):
        cost.learn(3, 80.0)
    assert cost.curve()[2] == pytest.approx(80.0, rel=0.01)
    cost.learn(WIDEST + 1, 1e6)  # a prompt's chunk, say
    assert cost.curve()[-1] < 500
