"""The times of passes by width: measured at load within a time limit, interpolated between the widths tried."""

from collections.abc import Sequence

import pytest

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.speculation.policy.timing import NARROW
from verifier_server.engine.pass_time import pass_cost, prefill_chunk, shared_pass_cost


class Slow(ScriptedBackend):
    """A scripted model whose passes take `base` and `per_token` milliseconds, on a clock of its own."""

    compiling = 0.0  # 1.0: the first pass of each width takes 0.5 s more, as if a kernel was compiled

    def __init__(self, base: float, per_token: float, max_batch_tokens: int = 64) -> None:
        super().__init__(max_batch_tokens=max_batch_tokens)
        self.base, self.per_token = base, per_token
        self.now = 0.0
        self.widths: list[int] = []
        self.starts: list[int] = []

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        (entry,) = batch
        self.widths.append(len(entry.tokens))
        self.starts.append(entry.start)
        first = 0.5 if self.widths.count(len(entry.tokens)) == 1 else 0.0
        self.now += self.base + self.per_token * len(entry.tokens) + self.compiling * first
        return super().extend(batch)


def test_all_widths_are_tried_and_the_slot_is_released() -> None:
    slow = Slow(0.02, 0.003)
    curve = pass_cost(slow, lambda: slow.now)
    assert curve == pytest.approx([0.02 + 0.003 * width for width in range(1, NARROW + 1)])
    assert slow.widths.count(17) == 3
    assert slow.now < 4.5
    with pytest.raises(Exception, match="slot 0"):  # the slot is empty
        slow.extend([Entry(0, 1, [1], 0)])


class Rereading(Slow):
    """Reads up to 8 tokens again after a rejection, and takes no time to copy its state behind them."""

    point = 0

    def reread(self, slot: int, length: int) -> int:
        return length - self.point if length < self.length(slot) else 0

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        again = self.reread(0, batch[0].start)
        self.now += self.per_token * again
        if again in (0, 8):
            self.point = batch[0].start
        return super().extend(batch)


def test_drafts_pay_for_what_is_read_again_after_a_rejection() -> None:
    engine = Rereading(0.02, 0.003)
    first, *others = pass_cost(engine, lambda: engine.now)
    assert first == pytest.approx(0.023)
    more = [cost - 0.02 - 0.003 * width for width, cost in enumerate(others, 2)]
    assert all(0.9 < each / 0.003 < 8.1 for each in more)


class Knee(Slow):
    """Its passes take as long up to a width, and longer in proportion beyond it."""

    def __init__(self, knee: int, **options: int) -> None:
        super().__init__(0.0, 0.0, **options)
        self._knee = knee

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        self.base = 0.01 * max(1.0, len(batch[0].tokens) / self._knee)
        return super().extend(batch)


def test_passes_that_many_sessions_share_are_timed_too() -> None:
    engine = Knee(128, max_batch_tokens=512)
    curve = shared_pass_cost(engine, lambda: engine.now, pass_cost(engine, lambda: engine.now))
    assert len(curve) == 512 and curve[:128] == pytest.approx([0.01] * 128)
    assert (curve[255], curve[383], curve[511]) == pytest.approx((0.02, 0.03, 0.04))
    with pytest.raises(Exception, match="slot 0"):  # the slot is empty
        engine.extend([Entry(0, 1, [1], 0)])


@pytest.mark.parametrize(("knee", "tokens"), [(1, 128), (64, 128), (256, 384), (512, 512)])
def test_prompts_have_as_many_tokens_in_a_pass_as_make_it_half_as_long_again(knee: int, tokens: int) -> None:
    engine = Knee(knee, max_batch_tokens=512)
    narrow = [0.01 * max(1.0, width / knee) for width in range(1, 18)]
    assert prefill_chunk(shared_pass_cost(engine, lambda: engine.now, narrow)) == pytest.approx(tokens, abs=1)
