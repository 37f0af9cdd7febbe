"""What is asked in which order, and when jobs begin."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lab.bench.case import Arrival, Case, Due, Prompt, TraceFile
from lab.bench.jobs import WARM_UP, Fitted, PreparedCase, Stretch, jobs_of, plan

PROMPTS = [Prompt(text="a"), Prompt(turns=["b", "c"])]


def prepared(name: str, requests: int, concurrency: int | None = None, arrival: Arrival = Arrival()) -> PreparedCase:
    case = Case(
        name=name,
        group="g",
        description="d",
        prompts=PROMPTS,
        requests=requests,
        concurrency=concurrency,
        arrival=arrival,
    )
    return PreparedCase(case=case, api="chat", jobs=jobs_of(case, [None, None]))


CASES = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4)), min_size=1, max_size=3).map(
    lambda found: [prepared(str(number), *each) for number, each in enumerate(found)]
)
SIDES = st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]])


def asked(stretches: list[Stretch]) -> list[tuple[str, str, int, int]]:
    return [
        (each.side, each.case.name, each.repetition, index)
        for each in stretches
        for job in each.jobs
        for index in job.indices
        if each.repetition != WARM_UP
    ]


@given(CASES, SIDES, st.integers(1, 3), st.integers(0, 2), st.randoms())
def test_every_request_is_asked_once_and_what_is_left_after_an_interruption(
    cases: list[PreparedCase], sides: list[str], repetitions: int, warm_up: int, random: Random
) -> None:
    def planned(done: set[tuple[str, str, int, int]]) -> list[Stretch]:
        return list(plan(cases, sides, repetitions=repetitions, warm_up=warm_up, done=done))

    whole = asked(planned(set()))
    wanted = {
        (side, each.name, repetition, index)
        for side in sides
        for each in cases
        for repetition in range(repetitions)
        for index in range(each.requests)
    }
    assert len(whole) == len(wanted) and set(whole) == wanted
    done = set(random.sample(whole, random.randint(0, len(whole))))
    left = asked(planned(done))
    assert wanted - done <= set(left)
    assert len(left) == len(set(left))
    assert planned(wanted) == []


def test_sides_are_warmed_up_first_and_requests_that_arrive_by_themselves_are_in_one_block() -> None:
    case = prepared("0", 4, arrival=Arrival(poisson=1.0))
    found = plan([case], ["a", "b"], repetitions=1, warm_up=1)
    assert [(each.side, each.repetition, len(each.jobs)) for each in found] == [
        *(("a", WARM_UP, 1), ("b", WARM_UP, 1)),
        *(("b", 0, 4), ("a", 0, 4)),
    ]


def test_jobs_have_the_lengths_of_a_trace() -> None:
    case = Case(
        name="0",
        group="g",
        description="d",
        prompts=[Prompt(before="> ", text="abc")],
        requests=3,
        output_tokens=9,
        arrival=Arrival(trace=TraceFile(file="t", requests=[Due(0.0, 10, 5), Due(1.0, 20, 6)])),
    )
    made = PreparedCase(case=case, api="completions", jobs=jobs_of(case, [Fitted(40, 10)]))
    assert [(job.characters, job.max_tokens) for job in made.jobs] == [(40, 5), (80, 6), (40, 5)]
    assert made.text_of(made.jobs[0]) == "> " + ("abc" * 14)[:40]
    assert PreparedCase.model_validate_json(made.model_dump_json()) == made
