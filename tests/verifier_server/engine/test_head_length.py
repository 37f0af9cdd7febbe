"""How many tokens the head predicts: what the measured times and what it has learnt are worth."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from verifier_server.engine.head_length import HeadLength

FLAT = [1.0 + 0.01 * more for more in range(17)]  # seconds of passes over 1, 2, … tokens
STEEP = [1.0 + more for more in range(17)]


def learnt(length: HeadLength, depth: int, right: int, steps: int = 600) -> HeadLength:
    """`length`, after steps in which the first `right` of `depth` predictions were accepted."""
    for _ in range(steps):
        length.learn(depth, right)
    return length


@given(
    rises=st.lists(st.floats(0.0, 1.0), min_size=16, max_size=16),
    step=st.floats(0.0, 1.0),
    depth=st.integers(0, 8),
    right=st.integers(0, 8),
    sessions=st.integers(0, 6),
    others=st.integers(0, 6),
)
def test_what_is_predicted_is_never_slower_than_nothing(
    rises: list[float], step: float, depth: int, right: int, sessions: int, others: int
) -> None:
    times, right = [*accumulate([1.0, *rises])], min(right, depth)
    length = learnt(HeadLength(times, step, depth), depth, right)

    def rate(predicted: int) -> float:
        """Tokens per second of all sessions of a pass."""
        last = times[-1] - times[-2]
        beyond = max(0, sessions * (1 + predicted) + others - len(times))
        seconds = times[min(sessions * (1 + predicted) + others, len(times)) - 1] + last * beyond
        return (others + sessions * (1 + min(right, predicted))) / (seconds + predicted * step)

    found = length.best(sessions, max(1, sessions + others), others)
    assert 0 <= found <= depth
    if found:
        assert rate(found) >= rate(0)


def test_a_head_that_is_right_predicts_all_that_it_can() -> None:
    assert learnt(HeadLength(FLAT, 0.01, 5), 5, 5).best(1, 1) == 5
    assert learnt(HeadLength(FLAT, 0.01, 5), 5, 2).best(1, 1) == 2


def test_before_anything_is_known_some_tokens_are_predicted_where_they_cost_little() -> None:
    assert HeadLength(FLAT, 0.01, 5).best(1, 1) == 5
    assert HeadLength(STEEP, 0.01, 5).best(1, 1) == 0


def test_without_a_head_or_times_or_sessions_nothing_is_predicted() -> None:
    assert HeadLength(FLAT, 0.01, 0).best(1, 1) == 0
    assert HeadLength([], 0.01, 5).best(1, 1) == 0
    assert HeadLength(FLAT, 0.01, 5).best(0, 4) == 0


def test_many_sessions_predict_nothing_where_passes_grow_with_their_width() -> None:
    """Up to 8 tokens a pass takes the same time, and each further token as long as a whole pass."""
    times = [1.0] * 8 + [float(width - 7) for width in range(9, 33)]
    length = learnt(HeadLength(times, 0.01, 4), 4, 4)
    assert [length.best(sessions, sessions) for sessions in (1, 2, 4, 8)] == [4, 3, 1, 0]


def test_sessions_that_only_wait_for_the_head_count() -> None:
    length = learnt(HeadLength(FLAT, 0.2, 3), 3, 3)
    assert length.best(1, 1) == 3
    assert length.best(1, 9, others=8) == 0, "one gains a token, and nine wait"
    assert length.best(8, 9, others=1) == 3


def test_a_step_of_the_head_that_takes_longer_predicts_less() -> None:
    length = learnt(HeadLength(FLAT, 0.01, 3), 3, 1)
    assert length.best(1, 1) == 1
    for _ in range(200):
        length.took(2.0)
    assert length.best(1, 1) == 0


def test_a_prediction_that_does_not_pay_is_tried_again() -> None:
    length = learnt(HeadLength(FLAT, 0.01, 3), 3, 0)
    found = [length.best(1, 1) for _ in range(200)]
    assert set(found) == {0, 1} and 2 <= sum(found) <= 4
    learnt(length, 1, 1, steps=20)
    assert length.best(1, 1) >= 1, "it was right"
