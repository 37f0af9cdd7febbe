"""Files that are made of a run's records: read back by what reads such files."""

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
from rich.console import Console

from lab.bench.errors import BadRecords
from lab.bench.records import RequestFailure, Results, Run
from lab.bench.report import data_files, llmperf, sentences, tables
from lab.bench.report.files import write_reports
from lab.bench.report.markdown import markdown
from lab.bench.report.page.page import page
from lab.bench.report.terminal import show
from lab.bench.statistics.analysis import Analysis, analyse
from tests.lab.bench.runs import a_case, a_run, a_side, at_pace, pair_and_target

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


@pytest.fixture(scope="module")
def results() -> Results:
    return pair_and_target()


@pytest.fixture(scope="module")
def analysis(results: Results) -> Analysis:
    return analyse(results)


class Reader(HTMLParser):
    """Collects the elements of a page, and checks that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_needs_nothing_else(analysis: Analysis, results: Results) -> None:
    found = Reader(page(analysis, results))
    assert not {name for name, _ in found.elements} & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert not [key for _, given in found.elements for key in given if key in ("src", "style") or key.startswith("on")]
    assert all((given["href"] or "").startswith("#") for given in found.named("a"))
    [policy] = [given["content"] for given in found.named("meta") if "http-equiv" in given]
    assert (policy or "").startswith("default-src 'none'; style-src 'sha256-")
    assert "url(" not in page(analysis, results)


def test_links_of_the_page_lead_somewhere_and_tables_and_charts_have_names(
    analysis: Analysis, results: Results
) -> None:
    found = Reader(page(analysis, results))
    named = [given["id"] for _, given in found.elements if "id" in given]
    assert len(named) == len(set(named))
    assert {f"#{name}" for name in named} == {given["href"] for given in found.named("a")}
    charts = [given for given in found.named("svg") if given.get("role") == "img"]
    assert len(charts) == 5
    regions = [given for _, given in found.elements if given.get("role") == "region"]
    assert regions and all(given["aria-label"] and given["tabindex"] == "0" for given in regions)


def test_sides_differ_in_the_shape_of_their_marks(analysis: Analysis, results: Results) -> None:
    found = Reader(page(analysis, results))
    first = [name for name, given in found.elements if (given.get("class") or "").split()[:1] == ["side-0"]]
    second = [name for name, given in found.elements if (given.get("class") or "").split()[:1] == ["side-1"]]
    assert "circle" in first and "polygon" not in first
    assert "polygon" in second and "circle" not in second


def test_what_models_and_servers_wrote_stays_text(results: Results) -> None:
    requests = [
        replace(each, text=HOSTILE, text_hash="other")
        if each.side == "pair"
        else replace(each, failure=RequestFailure(kind="error", message=HOSTILE))
        if each.index == 7
        else each
        for each in results.requests
    ]
    hostile = Results(results.run, requests, results.stretches)
    text = page(analyse(hostile), hostile)
    found = Reader(text)
    assert "script" not in {name for name, _ in found.elements}
    assert "</pre><script>alert(1)</script>" in found.text and "\u202e" not in text
    assert "1 request failed" in found.text
    assert "Texts of pair that differ from those of target" in found.text


def test_a_run_of_one_side_and_a_run_without_records_have_a_page() -> None:
    run = a_run([a_side("only")], [a_case(), a_case("other")])
    alone = Results(run, [at_pace(0.1, side="only")], [])
    found = Reader(page(analyse(alone), alone)).text
    assert "Who wins" not in found and "The run is not finished" in found
    nothing = Results(run, [], [])
    Reader(page(analyse(nothing), nothing))


@pytest.mark.parametrize("interleaving", get_args(get_type_hints(Run)["interleaving"]))
def test_the_page_says_how_sides_took_turns(results: Results, interleaving: Any) -> None:
    changed = Results(replace(results.run, interleaving=interleaving), results.requests, results.stretches)
    assert "Sides " in Reader(page(analyse(changed), changed)).text


def test_the_summary_is_a_line_for_each_side_and_case(analysis: Analysis) -> None:
    lines = [*csv.DictReader(io.StringIO(data_files.summary_csv(analysis)))]
    assert [(line["case"], line["side"]) for line in lines] == [
        ("counting", "target"),
        ("counting", "pair"),
        ("noise", "target"),
        ("noise", "pair"),
    ]
    target, pair = lines[:2]
    assert float(target["ttft_ms_p50"]) == pytest.approx(analysis.summaries[0].distributions["ttft_ms"].p50)
    assert (target["acceptance_rate"], pair["acceptance_rate"]) == ("", "0.5")
    assert (pair["tokens_per_second_winner"], pair["texts_equal"]) == ("pair", "8")
    assert target["tokens_per_second_ratio"] == ""


def test_requests_are_lines_and_run_no_formula(results: Results) -> None:
    hostile = [replace(each, prompt="=cmd()") for each in results.requests]
    lines = [*csv.DictReader(io.StringIO(data_files.requests_csv(hostile)))]
    assert len(lines) == len(results.requests)
    assert (lines[0]["prompt"], lines[0]["chunks"], lines[0]["tokens_out"]) == ("'=cmd()", "10", "10")


def test_the_json_follows_its_schema(analysis: Analysis) -> None:
    schema = data_files.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(data_files.as_json(analysis))
    jsonschema.validate(found, schema, jsonschema.Draft202012Validator)
    assert found["format"] == "specpair-bench-report-1" and found["baseline"] == "target"
    del found["summaries"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema, jsonschema.Draft202012Validator)


def test_llmperf_files_have_its_keys_in_seconds(analysis: Analysis, results: Results) -> None:
    case, side = results.run.cases[0], results.run.sides[0]
    requests = [each for each in results.requests if (each.case, each.side) == (case.name, side.name)]
    found = llmperf.summary(case, side, analysis.summaries[0], requests, 1.0)
    assert found["results_ttft_s_quantiles_p50"] == pytest.approx(
        analysis.summaries[0].distributions["ttft_ms"].p50 / 1000
    )
    assert found["results_number_output_tokens_mean"] == 10
    assert found["results_inter_token_latency_s_mean"] == pytest.approx(found["results_end_to_end_latency_s_mean"] / 10)
    assert (found["num_concurrent_requests"], found["results_num_completed_requests"]) == (1, 8)
    assert found["name"] == "counting_target_m_64_10_summary"
    failed = replace(requests[0], failure=RequestFailure(kind="status", status=503, message="full"))
    each = llmperf.individual_responses([failed])[0]
    assert (each["error_code"], each["error_msg"], each["number_total_tokens"]) == (503, "full", 74)


def test_markdown_has_a_table_of_each_case_and_escapes_names(results: Results) -> None:
    renamed = replace(results.run, sides=(replace(results.run.sides[0], model="a|b"), results.run.sides[1]))
    cases = tuple(replace(each, description="a | `b` <i>") for each in renamed.cases)
    text = markdown(analyse(Results(replace(renamed, cases=cases), results.requests, results.stretches)))
    assert "a \\| \\`b\\` \\<i\\>" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    headings = [number for number, line in enumerate(lines) if line.startswith("| ---")]
    assert len(headings) == 6
    for number in headings:
        width = lines[number].count(" | ")
        assert lines[number - 1].count(" | ") == width == lines[number + 1].count(" | ")


@pytest.mark.parametrize("width", [40, 80, 1000])
def test_the_terminal_shows_all_columns_in_as_many_tables_as_fit(analysis: Analysis, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    show(analysis, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "tokens/s: pair is " in shown.replace("\n", " ")
    assert all(len(line.rstrip()) <= width for line in shown.splitlines() if "│" in line or "─" in line)
    headings = tables.sides(analysis, analysis.run.cases[0]).headings
    assert all(heading in shown for heading in headings)
    assert (shown.count("\n side ") == len(analysis.run.cases)) == (width == 1000)


def test_the_arrival_of_a_case_is_told_in_words(results: Results) -> None:
    case = replace(results.run.cases[0], arrival={"bursts": {"size": 4, "every": 10.0}})
    assert "; arrival: bursts size 4, every 10.0" in sentences.load(case)


def test_what_differs_is_said_first_and_what_does_not_in_one_sentence(analysis: Analysis, results: Results) -> None:
    counting, noise = (sentences.verdicts(analysis, case) for case in results.run.cases)
    assert counting[0].startswith("tokens/s: pair is 2.00 times target (")
    assert [each for each in noise if "no difference seen" in each] == [noise[0]]
    assert noise[0].startswith("pair: no difference seen in tokens/s (0.9")
    few = Results(results.run, [each for each in results.requests if each.index < 3], results.stretches)
    said = sentences.verdicts(analyse(few), results.run.cases[0])
    assert said[0].startswith("pair: too few to tell, 5 requests are needed; times target: tokens/s ")


def test_the_columns_of_a_table_are_those_that_somebody_has(analysis: Analysis, results: Results) -> None:
    counting, noise = (tables.sides(analysis, case).headings for case in results.run.cases)
    assert "goodput, requests/s" in counting and "goodput, requests/s" not in noise
    assert "failed" not in counting and "cost/1M tokens" in counting


def test_reports_are_written_beside_the_records(analysis: Analysis, results: Results, tmp_path: Path) -> None:
    paths = [path.relative_to(tmp_path).as_posix() for path in write_reports(analysis, results, tmp_path)]
    assert paths[:6] == [
        *("report.html", "report.md", "summary.csv", "requests.csv"),
        *("analysis.json", "analysis.schema.json"),
    ]
    assert len(paths) == 6 + 2 * 4 and all((tmp_path / path).stat().st_size for path in paths)
    (tmp_path / "report.md").unlink()
    (tmp_path / "report.md").mkdir()
    with pytest.raises(BadRecords, match=r"report\.md cannot be written"):
        write_reports(analysis, results, tmp_path)
