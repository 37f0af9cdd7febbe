"""Cases are read from YAML files, and mistakes in them are named."""

from pathlib import Path

import pytest

from lab.bench.cases.reading import chosen_cases, read_cases, shipped_cases
from lab.bench.errors import BadCase

CASE = "group: code\ndescription: d\n"


def case_file(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_cases_ship_for_each_kind_of_work() -> None:
    shipped = {name: each.case for name, each in shipped_cases().items()}
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
    text = CASE + "prompts: [{text: a, answer: 12}]\nprompt_file: more.jsonl\nbody: {mode: off}\n"
    text += "arrival: {trace: {file: t.csv}}\n"
    [loaded] = read_cases(case_file(tmp_path, text))
    case = loaded.case
    assert (case.name, case.body) == ("mine", {"mode": "off"})  # no switch, as in YAML 1.2
    assert case.prompts[0].answer == "12"
    assert [prompt.text for prompt in case.prompts] == ["a", "b", None]
    assert case.prompts[1].answer == "3 + 4\n#### 7" and case.prompts[2].requests == 2
    assert (loaded.trace[0].output_tokens, case.jobs, case.most_at_once) == (3, 1, None)
    assert case.needs_chat


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "mine.yaml is not YAML: line 1, column 2: expected the node content"),
        ("a", "mine.yaml has no keys: write at least group, description and prompts"),
        (CASE + "prompts: [a]\nconcurency: 4\n", "mine.yaml: no key 'concurency'; did you mean concurrency?"),
        (CASE + "prompts: [a]\ngroup: b\n", "the key 'group' is given twice"),
        (CASE, "has no prompts: give prompts, or a prompt_file"),
        (CASE + "prompts: [a]\nrequests: 0\n", "requests: Input should be greater than or equal to 1"),
        (CASE + "prompts: [a]\nrequests: '3'\n", "requests: Input should be a valid integer"),
        (CASE + "prompts: [{name: b}]\n", "a prompt has one of text, messages and turns, got none"),
        (CASE + "prompts: [{text: b, answer: many}]\n", "prompts.0.answer: 'many' has no number, by which answers are"),
        (CASE + "prompts: [{txt: b}]\n", "prompts.0: no key 'txt'; did you mean text?"),
        (CASE + "prompts: [a]\narrival: {poisson: -1}\n", "arrival.poisson: Input should be greater than 0"),
        (CASE + "prompts: [a]\nslo: {ttft: 1}\n", "slo: no key 'ttft'; did you mean ttft_ms?"),
        (CASE + "prompts: [a]\nslo: {x: 1}\n", "slo: no key 'x'; choose one of ttft_ms, itl_ms, latency_ms"),
        (CASE + "prompts: [a]\narrival: {poissn: 2}\n", "arrival: no form 'poissn'; did you mean {poisson: 2.0}?"),
        (CASE + "prompts: [a]\narrival: closd\n", "arrival: no form 'closd'; did you mean closed?"),
        (CASE + "prompts: [a]\narrival: {x: 2}\n", "no form 'x'; choose one of closed, {poisson: 2.0}, {bursts"),
        (CASE + "prompts: [a]\narrival: poisson\n", "no form 'poisson'; did you mean {poisson: 2.0}?"),
        (
            CASE + "prompts: [a]\narrival: {bursts: {size: 2, evry: 1}}\n",
            "arrival.bursts: no key 'evry'; did you mean every?",
        ),
        (CASE + "prompts: [a]\narrival: {bursts: {size: 2}}\n", "arrival.bursts.every: Field required"),
        (CASE + "prompts: [{turns: [a]}]\napi: completions\n", "messages and turns are for chats"),
        (CASE + "prompt_file: gone.jsonl\n", "gone.jsonl, which a case names, cannot be read"),
        (CASE + "prompts: [a]\narrival: {trace: {file: gone.csv}}\n", "gone.csv, which a case names, cannot be read"),
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
    assert chosen[-1].case.description == "d"  # one's own comes before the one that ships
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
