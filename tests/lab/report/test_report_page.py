"""The HTML file of recorded runs: it has all of the trace, the figures of the readout, and no text becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.errors import TraceError
from drafter_client.statistics import Stats
from drafter_client.trace.writer import ROUNDS, TOKENS, TraceFolder
from lab.report.page import page
from lab.report.reader import read_runs
from lab.report.recorded import modes, outages, pass_widths
from tests.drafter_client.support import Verifier
from tests.lab.report.traces import HOSTILE, data_of, write_rounds

UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Elements(HTMLParser):
    """The elements of a page and the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names, self.attributes = list[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def texts(verifier: Verifier, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Stats]]:
    """A folder with a run in each mode, and their statistics."""
    folder = tmp_path_factory.mktemp("runs")
    with Pair(verifier.url, DraftModel(Path("1"), "scripted"), observer=TraceFolder(folder, text=True)) as pair:
        asked = [*pair.modes, Mode.AUTO]
        ended = [
            pair.generate("def f(x):", Options(max_tokens=200, mode=mode, seed=3, explain=True)).read()
            for mode in asked
        ]
    return folder, [each.stats for each in ended]


def test_data_have_all_of_the_trace(texts: tuple[Path, list[Stats]]) -> None:
    runs = read_runs(texts[0])
    body = data_of(page(runs, text=True))
    assert (body["version"], body["text"], len(body["runs"])) == (1, True, len(texts[1]))
    for run, told in zip(runs, body["runs"], strict=True):
        raw = json.loads((texts[0] / f"run-{told['run']}.json").read_text())
        for name, records, table in (("rounds", run.rounds, ROUNDS), ("tokens", run.tokens, TOKENS)):
            for column in {*table.names} - {"run", "target_decoded"}:
                assert told[name][column] == [record[column] for record in records], column
        for name in ("prefills", "steps", "self_continuation_passes", "rounds", "tokens"):
            for column in {key for each in raw[name] for key in each} - {*ROUNDS.names, *TOKENS.names} | (
                {"round"} if name == "tokens" else set()
            ):
                assert told[name][column] == [each[column] for each in raw[name]], column
        assert (told["text"], told["pieces"], told["settings"]) == (raw["text"], raw["pieces"], raw["settings"])
        assert {**told["metrics"], "token_ids": 0, "decisions": 0} == {**raw["metrics"], "token_ids": 0, "decisions": 0}
        decisions = raw["metrics"]["decisions"]
        if len(decisions or ()) == len(run.tokens):
            assert told["decisions"]["draft_p"] == [each["draft_p"] for each in decisions]


def test_modes_and_outages_have_times(tmp_path: Path) -> None:
    write_rounds(tmp_path, 10)
    [run] = read_runs(tmp_path)
    assert modes(run) == [("remote", 20, 0.0, 290.0), ("target", 11, 290.0, 410.0)]
    assert outages(run) == [(15, 210.0, 210.0)]
    assert pass_widths(run) == [(5, 10, 20, 20.0)]
    for record in run.rounds:
        record["forward_ms"] = None  # the responses were lost
    assert pass_widths(run) == [(5, 10, 20, None)]
    shown = page([run], text=True)
    for words in ("15</th><td>210 to 210 ms", "remote</th><td>20</td><td>0 to 290 ms", "Why: remote measured word"):
        assert words in shown


def test_text_is_left_out_on_request(texts: tuple[Path, list[Stats]]) -> None:
    runs = read_runs(texts[0])
    shown = page(runs, text=False)
    body = data_of(shown)
    assert body["text"] is False and "The text was left out of this file" in shown
    for run, told in zip(runs, body["runs"], strict=True):
        assert not {"text", "pieces"} & {*told} and not {"token_ids", "decisions", "logprobs"} & {*told["metrics"]}
        assert not {"token", "draft"} & {*told["tokens"]} and "committed_ms" in told["tokens"]
        assert "drafts" not in {*told["rounds"], *told["steps"]}
        assert not {"token", "draft"} & {*told["decisions"]}
        assert len(told["tokens"]["source"]) == len(run.tokens)
        whole = "".join(run.detail.text)
        assert whole not in shown and json.dumps(whole)[1:-1] not in shown


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    write_rounds(tmp_path, 2, HOSTILE)
    shown = page(read_runs(tmp_path), text=True)
    elements, plain = Elements(shown), tmp_path / "plain"
    write_rounds(plain, 2)
    harmless = Elements(page(read_runs(plain), text=True))
    assert (elements.names, elements.attributes) == (harmless.names, harmless.attributes)
    assert elements.names.count("script") == 2 and not UNSEEN.search(shown)
    assert not any(name.startswith("on") or name == "style" for name in elements.attributes)
    assert data_of(shown)["runs"][0]["text"][0] == HOSTILE
    assert "pepper" not in shown, "a salt lets others find what is in the verifier's KV cache"


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"resumed": ["x"]}, r"run 1: metrics.resumed.0: .*: is it a trace\?"),
        ({"times_ms": {"drafting": 1e99}}, r"run 1: metrics.times_ms.drafting"),
    ],
)
def test_metrics_of_another_form_are_refused(tmp_path: Path, metrics: dict[str, object], message: str) -> None:
    write_rounds(tmp_path, 2)
    body = json.loads((tmp_path / "run-1.json").read_text())
    (tmp_path / "run-1.json").write_text(json.dumps({**body, "metrics": metrics}))
    with pytest.raises(TraceError, match=message):
        page(read_runs(tmp_path), text=True)
