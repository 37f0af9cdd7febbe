"""What passes cost: tried within its time; widths in between on straight lines."""

from collections.abc import Sequence

import pytest

from backends.base import Entry, Logits
from backends.scripted import ScriptedBackend
from verifier_server.engine.pass_cost import WIDEST, pass_cost


class Slow(ScriptedBackend):
    """A toy whose passes take what `ms` says, on a clock of its own."""

    compiling = 0.0

    def __init__(self, base: float, per_token: float, max_batch_tokens: int = 64) -> None:
        super().__init__(max_batch_tokens=max_batch_tokens)
        self.base, self.per_token = base, per_token
        self.now = 0.0
        self.widths: list[int] = []

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        (entry,) = batch
        self.widths.append(len(entry.tokens))
        first = 500.0 if self.widths.count(len(entry.tokens)) == 1 else 0.0  # a kernel is compiled, say
        self.now += (self.base + self.per_token * len(entry.tokens) + self.compiling * first) / 1e3
        return super().extend(batch)


def test_an_engine_is_tried_over_all_widths_and_left_as_it_was() -> None:
    slow = Slow(20.0, 3.0)
    curve = pass_cost(slow, lambda: slow.now)
    assert curve == pytest.approx([20 + 3 * width for width in range(1, WIDEST + 1)])
    assert slow.now < 2.5
    with pytest.raises(Exception, match="row 0"):  # nothing is left of what was tried
        slow.extend([Entry(0, 1, [1], 0)])


def test_a_very_slow_engine_is_tried_just_enough_to_draw_a_line() -> None:
    slow = Slow(3000.0, 100.0)
    curve = pass_cost(slow, lambda: slow.now)
    assert slow.widths == [1, 2]
    assert curve == pytest.approx([3000 + 100 * width for width in range(1, WIDEST + 1)])


def test_no_pass_is_wider_than_the_engine_takes() -> None:
    slow = Slow(20.0, 3.0, max_batch_tokens=5)
    assert len(pass_cost(slow, lambda: slow.now)) == WIDEST
    assert max(slow.widths) == 5


def test_what_only_the_first_pass_of_a_width_takes_is_left_out() -> None:
    slow = Slow(10.0, 1.0, max_batch_tokens=3)
    slow.compiling = 1.0
    assert pass_cost(slow, lambda: slow.now)[:3] == pytest.approx([11, 12, 13])


def test_an_engine_that_takes_one_token_at_a_time_has_no_curve() -> None:
    slow = Slow(10.0, 1.0, max_batch_tokens=1)
    assert pass_cost(slow, lambda: slow.now) == []
