"""Files that are made of a run's records: read back by what reads such files."""

import io
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from drafter_client.cli.program import main
from lab.bench import tables
from lab.bench.analysis import Analysis, analyse
from lab.bench.jobs import WARM_UP, Stretch
from lab.bench.measuring import shown
from lab.bench.page import page
from lab.bench.record_files import RECORDS, encode_record, write_run
from lab.bench.records import RequestFailure, Results
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


def test_what_models_and_servers_wrote_stays_text(results: Results) -> None:
    requests = [
        replace(each, text=HOSTILE, text_hash="other")
        if each.side == "pair"
        else replace(each, failure=RequestFailure(kind="error", message=HOSTILE))
        if each.index == 7
        else each
        for each in results.requests
    ]
    hostile = Results(results.run, requests)
    text = page(analyse(hostile), hostile)
    found = Reader(text)
    assert "script" not in {name for name, _ in found.elements}
    assert "</pre><script>alert(1)</script>" in found.text and "\u202e" not in text
    assert "1 request failed" in found.text
    assert "Texts of pair that differ from those of target" in found.text


def test_a_run_of_one_side_and_a_run_without_records_have_a_page() -> None:
    run = a_run([a_side("only")], [a_case(), a_case("other")])
    alone = Results(run, [at_pace(0.1, side="only")])
    found = Reader(page(analyse(alone), alone)).text
    assert "Who wins" not in found and "The run is not finished" in found
    nothing = Results(run, [])
    Reader(page(analyse(nothing), nothing))


def test_what_differs_is_said_first_and_what_does_not_in_one_sentence(analysis: Analysis, results: Results) -> None:
    counting, noise = (tables.verdicts(analysis, case) for case in results.run.cases)
    assert counting[0].startswith("tokens/s: pair is 2.00 times target (")
    assert [each for each in noise if "no difference seen" in each] == [noise[0]]
    assert noise[0].startswith("pair: no difference seen in tokens/s (0.9")
    few = Results(results.run, [each for each in results.requests if each.index < 3])
    said = tables.verdicts(analyse(few), results.run.cases[0])
    assert said[0].startswith("pair: too few to tell, 5 requests are needed; times target: tokens/s ")


def written(folder: Path, results: Results) -> Path:
    write_run(folder, results.run)
    (folder / RECORDS).write_bytes(b"".join(map(encode_record, results.requests)))
    return folder


def test_all_outputs_are_made_again_from_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", pair_and_target())
    assert main(["bench", "report", str(folder)]) == 0
    out, notes = capsys.readouterr()
    assert "pair is 2.00 times target" in out.replace("\n", " ")
    assert notes == f"drafter: the report is in {folder / 'report.html'}, its figures beside it\n"
    first = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert main(["bench", "report", str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == first


def test_what_cannot_be_reported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", pair_and_target())
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert "is no folder of 'drafter bench'" in capsys.readouterr().err
    assert main(["bench", "report", str(folder), "--baseline", "x"]) == 1
    assert "no side is called 'x'" in capsys.readouterr().err


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere() -> None:
    case = a_case("code", requests=1)
    warming, *measured = (Stretch("pair", case, repetition, case.jobs) for repetition in (WARM_UP, 0, 0))
    order, said = [warming, *measured], {}
    for terminal in (True, False):
        out = io.StringIO()
        with shown(Console(file=out, force_terminal=terminal, width=100), order, 3) as watch:
            for each in order:
                watch.begin(each)
                watch.request()
        said[terminal] = out.getvalue()
    assert "code, repetition 1 of 3: pair" in said[True] and "3/3" in said[True]
    assert said[False].splitlines() == ["drafter: code, warming up", "drafter: code, repetition 1 of 3"]
