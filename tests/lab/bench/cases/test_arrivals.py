"""Requests are due as the case's arrival has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.cases.arrivals import Due, due_times, parse_trace
from lab.bench.cases.case import Arrival, Burst, Bursts, Poisson, Traced, TraceFile
from lab.bench.errors import BadCase

RATES = st.floats(0.01, 1000)
TRACES = st.lists(st.floats(0, 1e4), min_size=1, max_size=8).map(
    lambda found: [Due(each - min(found)) for each in sorted(found)]
)
ARRIVALS: st.SearchStrategy[Arrival] = (
    st.builds(Poisson, poisson=RATES)
    | st.builds(Bursts, bursts=st.builds(Burst, size=st.integers(1, 9), every=RATES))
    | st.builds(Traced, trace=st.builds(TraceFile, file=st.just("t.csv"), speed=RATES))
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@given(ARRIVALS, st.integers(1, 40), TRACES, st.text())
def test_times_ascend_and_are_those_of_the_seed(arrival: Arrival, count: int, trace: list[Due], seed: str) -> None:
    due = due_times(arrival, count, seed, trace)
    assert due is not None and len(due) == count and due[0] >= 0
    assert due == sorted(due)
    assert due == due_times(arrival, count, seed, trace)


@given(st.integers(1, 9), RATES, st.integers(1, 40))
def test_bursts_have_their_size(size: int, every: float, count: int) -> None:
    due = due_times(Bursts(bursts=Burst(size=size, every=every)), count, "", [])
    assert due is not None
    assert [due.count(each) for each in dict.fromkeys(due)][:-1] == [size] * ((count - 1) // size)


def test_poisson_has_its_mean() -> None:
    due = due_times(Poisson(poisson=4.0), 4000, "a seed", [])
    assert due is not None
    assert due[-1] == pytest.approx(1000, rel=0.1)
    assert due != due_times(Poisson(poisson=4.0), 4000, "another seed", [])


def test_a_closed_loop_has_no_times() -> None:
    assert due_times("closed", 3, "", []) is None


def test_a_trace_is_sped_up_and_begins_anew() -> None:
    arrival = Traced(trace=TraceFile(file="t.csv", speed=2.0))
    assert due_times(arrival, 5, "", [Due(0.0), Due(2.0), Due(4.0)]) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_times_of_a_trace_are_those_since_its_first_request() -> None:
    azure = AZURE + "2023-11-16 18:15:47.5000000,20,3\n2023-11-16 18:15:46.2500000,10,4\n"
    assert parse_trace(azure, "t.csv") == [Due(0.0, 10, 4), Due(1.25, 20, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no requests: give CSV"), (AZURE + "2023-11-16 18:15:46,1,1\nyesterday,1,1\n", "line 3: ")],
)
def test_a_bad_trace_is_named(text: str, message: str) -> None:
    with pytest.raises(BadCase, match=rf"t\.csv.*{message}"):
        parse_trace(text, "t.csv")
