"""Cases are read from YAML files, mistakes in them are named, and their requests are due as the arrival has it."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.case import Arrival, Burst, Due, Prompt, TraceFile
from lab.bench.case_files import chosen_cases, read_cases, shipped_cases
from lab.bench.errors import BadCase
from lab.bench.jobs import due_times
from lab.bench.preparing import characters_for

CASE = "group: code\ndescription: d\n"


def case_file(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_cases_ship_for_each_kind_of_work() -> None:
    shipped = shipped_cases()
    groups = {case.group for case in shipped.values()}
    assert groups >= {
        *("predictable", "high-entropy", "code", "editing", "summarising"),
        *("chat", "extraction", "tools", "long-prompts", "quality"),
    }
    aws = [case for name, case in shipped.items() if name.startswith("aws-")]
    assert len(aws) == 8
    assert {(each.input_tokens, each.output_tokens, each.concurrency, each.requests) for each in aws} == {
        (64, 600, 4, 8)
    }


def test_a_case_is_read_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"question": "b", "answer": "3 + 4\\n#### 7"}\n\n{"turns": ["c", "d"]}\n')
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,9,3\n")
    text = CASE + "prompts: [a]\nprompt_file: more.jsonl\nbody: {mode: off}\n"
    text += "arrival: {trace: {file: t.csv}}\n"
    [case] = read_cases(case_file(tmp_path, text))
    assert (case.name, case.body) == ("mine", {"mode": "off"})  # no switch, as in YAML 1.2
    assert [prompt.text for prompt in case.prompts] == ["a", "b", None]
    assert case.prompts[2].requests == 2
    assert case.arrival.trace and case.arrival.trace.requests == [Due(0.0, 9, 3)]
    assert (case.jobs, case.most_at_once) == (1, None)
    assert case.needs_chat


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "mine.yaml is not YAML: line 1, column 2: expected the node content"),
        (CASE + "prompts: [a]\nconcurency: 4\n", "mine.yaml: no key 'concurency'; did you mean concurrency?"),
        (CASE + "prompts: [a]\ngroup: b\n", "the key 'group' is given twice"),
        (CASE, "has no prompts: give prompts, or a prompt_file"),
        (CASE + "prompts: [a]\nrequests: 0\n", "requests: Input should be greater than or equal to 1"),
        (CASE + "prompts: [{txt: b}]\n", "prompts.0: no key 'txt'; did you mean text?"),
        (CASE + "prompts: [a]\narrival: {poisson: -1}\n", "arrival.poisson: Input should be greater than 0"),
        (CASE + "prompts: [a]\narrival: {poissn: 2}\n", "arrival: no key 'poissn'; did you mean poisson?"),
        (
            CASE + "prompts: [a]\narrival: poisson\n",
            "arrival: no form 'poisson'; choose one of closed, {poisson: 2.0}, {bursts",
        ),
        (CASE + "prompts: [{turns: [a]}]\napi: completions\n", "messages and turns are for chats"),
        (CASE + "prompt_file: gone.jsonl\n", "gone.jsonl, which a case names, cannot be read"),
        ("description: d\nprompts: [a]\n", "group: Field required"),
    ],
)
def test_a_bad_case_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadCase) as caught:
        read_cases(case_file(tmp_path, text))
    assert message in str(caught.value)


def test_cases_are_chosen_by_name_and_pattern(tmp_path: Path) -> None:
    own = case_file(tmp_path, CASE + "prompts: [a]\n", "code.yaml")
    case_file(tmp_path, CASE + "prompts: [a]\n", "other.yml")
    assert [each.name for each in chosen_cases([], [tmp_path])] == ["code", "other"]
    chosen = chosen_cases(["aws-c*", "code"], [own])
    assert [each.name for each in chosen] == ["aws-cat-on-the-mat", "aws-counting", "code"]
    assert chosen[-1].description == "d"  # one's own comes before the one that ships
    with pytest.raises(BadCase, match=r"no case 'cod' \(files of your own: --cases\); did you mean code\?"):
        chosen_cases(["cod"], [])
    with pytest.raises(BadCase, match="two cases are called code"):
        chosen_cases([], [own, tmp_path])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadCase, match=r"has no file that ends in \.yaml"):
        read_cases(empty)
    with pytest.raises(BadCase, match="cannot be read: No such file"):
        read_cases(tmp_path / "gone.yaml")


RATES = st.floats(0.01, 1000)
TRACES = st.lists(st.floats(0, 1e4), min_size=1, max_size=8).map(
    lambda found: [Due(each - min(found)) for each in sorted(found)]
)
ARRIVALS: st.SearchStrategy[Arrival] = (
    st.builds(Arrival, poisson=RATES)
    | st.builds(Arrival, bursts=st.builds(Burst, size=st.integers(1, 9), every=RATES))
    | st.builds(Arrival, trace=st.builds(TraceFile, file=st.just("t.csv"), speed=RATES, requests=TRACES))
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@given(ARRIVALS, st.integers(1, 40), st.text())
def test_times_ascend_and_are_those_of_the_seed(arrival: Arrival, count: int, seed: str) -> None:
    due = due_times(arrival, count, seed)
    assert due is not None and len(due) == count and due[0] >= 0
    assert due == sorted(due)
    assert due == due_times(arrival, count, seed)


def test_a_trace_is_sped_up_and_begins_anew() -> None:
    arrival = Arrival(trace=TraceFile(file="t.csv", speed=2.0, requests=[Due(0.0), Due(2.0), Due(4.0)]))
    assert due_times(arrival, 5, "") == [0.0, 1.0, 2.0, 3.0, 4.0]


@given(st.integers(1, 5000), st.integers(1, 12), st.integers(0, 40))
def test_the_longest_text_that_fits_is_found(tokens: int, per_token: int, around: int) -> None:
    async def count(characters: int) -> int:
        return around + characters // per_token

    found = asyncio.run(characters_for(tokens, count))
    if around + 1 // per_token > tokens:
        assert found == 1
    else:
        assert asyncio.run(count(found)) == tokens


@given(st.text(min_size=1, max_size=9), st.integers(1, 60))
def test_a_text_is_cut_or_repeated_behind_what_stands_before(text: str, characters: int) -> None:
    made = Prompt(before="Go on: ", text=text).cut_to(characters)
    assert made.startswith("Go on: ")
    kept = made.removeprefix("Go on: ")
    assert len(kept) == characters
    assert all(each == text[at % len(text)] for at, each in enumerate(kept))
