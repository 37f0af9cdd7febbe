"""Static policies replayed: cases computed by hand, and what holds for any text and any times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.benchmarks.latency_sweep.reference import (
    MeasuredLatencies,
    Policy,
    Trace,
    best,
    policies,
    replay,
)

LENGTHS = range(17)


def policy(name: str, k: int) -> Policy:
    return next(policy for policy in policies(k) if policy.name == name)


def trace(text: str) -> Trace:
    """`+` where the drafter agrees, `-` where not; the first token, which prefill brings, is left out."""
    return Trace([False, *(place == "+" for place in text)])


def times(draft: float = 2.0, delay: float = 4.0, per_draft: float = 1.0) -> MeasuredLatencies:
    return MeasuredLatencies(draft, lambda k: 10.0 + per_draft * k, 2 * delay)


@pytest.mark.parametrize(
    ("name", "k", "text", "draft", "history"),
    [
        ("lockstep", 0, "+-+", 2, [(0, 1), (18, 2), (36, 3), (54, 4)]),
        # Two tokens are drafted at 4, with the verifier at 8, judged at 20, answered at 24; the second is rejected.
        # At the end nothing is left to draft: the last token is asked for as it is.
        ("lockstep", 2, "+-++++", 2, [(0, 1), (24, 3), (48, 6), (66, 7)]),
        # One draft goes out at 2. Until the answer at 21 the token that comes with it and one more are drafted, which
        # goes out at once.
        ("overlapped, topped up", 1, "+++++", 2, [(0, 1), (21, 3), (40, 5), (58, 6)]),
        # The answer at 31 contradicts the path. The step under way ends at 36, the next draft is there at 48.
        ("overlapped, topped up", 1, "-+++", 12, [(0, 1), (31, 2), (67, 4), (85, 5)]),
        # At 39 two of the next three drafts are there, and leave.
        ("overlapped, at once", 3, "+" * 11, 6, [(0, 1), (39, 5), (59, 8), (79, 11), (97, 12)]),
        # The second draft, behind one that is rejected at 17, takes no time. Then one at 23, and one at 25 without a
        # fresh draft for the last token.
        ("2 in flight", 1, "-+++", 2, [(0, 1), (21, 2), (42, 4), (52, 5)]),
        ("self-continued, eager", 0, "+-+", 2, [(0, 1), (10, 2), (20, 3), (30, 4)]),
        # Drafts of two tokens arrive at 8, 12 and 16, when the verifier has made two tokens by itself: nothing is left
        # of the first, both tokens of the second, and one of the third behind the token that came with the second.
        ("self-continued, eager", 2, "+" * 7, 2, [(0, 1), (10, 2), (20, 3), (32, 6), (43, 8)]),
        # The draft at 8 is near at 6, when the verifier has ended its own first step.
        ("self-continued, polite", 2, "+" * 7, 2, [(0, 1), (10, 2), (23, 4), (34, 6), (45, 8)]),
    ],
)
def test_replays_equal_those_computed_by_hand(
    name: str, k: int, text: str, draft: float, history: list[tuple[float, int]]
) -> None:
    assert replay(trace(text), times(draft), policy(name, k)) == history


def test_the_best_is_the_fastest_replay_of_all() -> None:
    text, costs = trace("+++-++-++++-+" * 3), times()
    found = best(text, costs)
    rates = {
        (one.name, k): (len(text.agrees) - 1) / replay(text, costs, one)[-1][0] for k in LENGTHS for one in policies(k)
    }
    assert found.tokens_per_second == max(rates.values()) == rates[found.policy, found.k]


texts = st.text("+-", min_size=1, max_size=40).map(trace)
lengths = st.sampled_from(LENGTHS)
seconds = st.floats(0.0, 50.0)
curves = st.lists(st.floats(1.0, 50.0), min_size=17, max_size=17)  # of passes, not even rising


@settings(max_examples=60)
@given(texts, lengths, seconds, seconds, curves)
def test_in_order_of_time_up_to_the_end(text: Trace, k: int, draft: float, rtt: float, passes: list[float]) -> None:
    costs = MeasuredLatencies(draft, lambda count: passes[min(count, 16)], rtt)
    for one in policies(k):
        history = replay(text, costs, one)
        at, known = zip(*history, strict=True)
        assert history[0] == (0.0, 1)
        assert list(at) == sorted(at)
        assert list(known) == sorted(set(known)) and known[-1] == len(text.agrees)
