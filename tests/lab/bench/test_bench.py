"""`drafter bench`, as a user runs it: on stand-ins, and on the drafter's own endpoint."""

import os
import signal
from pathlib import Path

import pytest

from drafter_client.cli.program import main
from lab.bench.record_files import read_results
from lab.bench.records import Results
from tests.gateway.openai_api.conftest import endpoints
from tests.lab.bench.stand_in import Json, StandIn

CASE = """
group: code
description: d
prompts: [{name: one, text: "a"}, {name: two, text: "b"}]
api: completions
requests: 4
concurrency: 2
input_tokens: 10
output_tokens: 6
ignore_eos: true
slo: {latency_ms: 100000}
"""
CHAT = """
group: chat
description: d
prompts: [{turns: ["a", "b"]}]
output_tokens: 3
"""


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "mine.yaml").write_text(CASE)
    return folder


def bench(tmp_path: Path, *arguments: object) -> int:
    return main(["bench", "--repetitions", "2", "--output", str(tmp_path / "out"), *map(str, arguments)])


def results(tmp_path: Path) -> Results:
    return read_results(tmp_path / "out")


def test_two_sides_are_measured_by_turns(tmp_path: Path, cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in = StandIn()
    with stand_in.served() as url:
        sides = ["--side", f"a={url}", "--side", f"b={url}", "--extra", 'b={"x": 1}', "--price", "2"]
        assert bench(tmp_path, "--cases", cases, *sides) == 0
    found = results(tmp_path)
    assert found.is_complete and len(found.requests) == 16
    assert (tmp_path / "out" / "report.html").is_file()
    assert {(each.tokens_in, each.tokens_out, each.text) for each in found.requests} == {(10, 6, "w0 w1 w2 w3 w4 w5 ")}
    assert all(each.failure is None and len(each.chunks) <= 6 and each.speculation for each in found.requests)
    assert all(each.speculation and each.speculation.accepted == 4 for each in found.requests)
    by_pairing = {(each.side, *each.pairing): each for each in found.requests}
    assert all(each.seed == by_pairing["b", *each.pairing].seed for each in found.requests)
    by_stretch = {each.stretch: (each.side, each.repetition) for each in found.requests}
    assert [by_stretch[at] for at in sorted(by_stretch)] == [("b", 0), ("a", 0), ("a", 1), ("b", 1)]
    assert {body.get("x") for body in stand_in.asked} == {None, 1}
    assert all(body["ignore_eos"] for body in stand_in.asked)
    salts = [body["cache_salt"] for body in stand_in.asked]
    assert len(salts) == len(set(salts)) == 18
    said = capsys.readouterr()
    assert "a, b: 1 case, 2 times each" in said.out and "group code; 4 requests; 2 at once;" in said.out
    assert "drafter: mine, repetition 2 of 2\n" in said.err


def test_turns_of_a_conversation_have_the_answers_before(tmp_path: Path) -> None:
    case = tmp_path / "talk.yaml"
    case.write_text(CHAT)
    stand_in = StandIn()
    with stand_in.served() as url:
        assert bench(tmp_path, "--cases", case, "--side", f"a={url}", "--warm-up", 0, "--no-texts") == 0
    assert stand_in.asked[1]["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "w0 w1 w2 "},
        {"role": "user", "content": "b"},
    ]
    salts = [body["cache_salt"] for body in stand_in.asked]
    assert salts[0] == salts[1] != salts[2] == salts[3]  # the second turn finds the first one, and nobody else's
    assert [(each.repetition, each.index) for each in results(tmp_path).requests] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(each.text is None and each.text_hash for each in results(tmp_path).requests)


def test_a_turn_that_fails_ends_its_conversation(tmp_path: Path) -> None:
    case = tmp_path / "talk.yaml"
    case.write_text(CHAT)
    stand_in = StandIn(refuses=lambda body: "too long" if body["max_tokens"] > 1 else None)
    with stand_in.served() as url:
        assert bench(tmp_path, "--cases", case, "--side", f"a={url}") == 1
    found = results(tmp_path)
    assert found.is_complete
    kinds = [each.failure.kind for each in found.requests if each.failure]
    assert kinds == ["status", "skipped"] * 2
    assert found.requests[0].failure and found.requests[0].failure.message == "too long"


def test_an_interrupted_run_goes_on(tmp_path: Path, cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C keeps what was measured; --resume and the same command measure the rest only."""

    def interrupt(body: Json) -> None:
        if len(stand_in.asked) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    stand_in = StandIn(on_asked=interrupt)
    with stand_in.served() as url:
        command = ["--cases", cases, "--side", f"a={url}", "--clients", 1]
        assert bench(tmp_path, *command) == 130
        before = results(tmp_path)
        assert 0 < len(before.requests) < 8
        said = capsys.readouterr()
        assert f"{len(before.requests)} of 8 requests are in {tmp_path / 'out'}; go on: --resume" in said.err
        assert "not finished" in said.out and "\nmine d\n" in said.out
        asked = len(stand_in.asked)
        assert main(["bench", "--resume", str(tmp_path / "out")]) == 0
        assert results(tmp_path).is_complete
        assert results(tmp_path).requests[: len(before.requests)] == before.requests
        assert len(stand_in.asked) - asked == 8 - len(before.requests) + 1  # and one to warm up
        asked = len(stand_in.asked)
        assert bench(tmp_path, *command) == 0  # nothing is left
        assert len(stand_in.asked) == asked
        assert bench(tmp_path, *command, "--seed", 3) == 1
    assert "has a run of other sides, cases or options" in capsys.readouterr().err


def test_a_run_whose_endpoint_is_gone_says_so(tmp_path: Path, cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StandIn().served() as url:
        assert bench(tmp_path, "--cases", cases, "--side", f"a={url}", "--repetitions", 1) == 0
    out = tmp_path / "out"
    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:20])  # cut off, as by a crash
    assert main(["bench", "--resume", str(out)]) == 1
    assert f"no endpoint answers for a at {url}" in capsys.readouterr().err


def test_the_drafters_endpoint_is_measured_in_its_modes(tmp_path: Path, cases: Path) -> None:
    with endpoints("drafter") as (url, _):
        assert bench(tmp_path, "--cases", cases, "--modes", url, "--repetitions", 1) == 0
    found = results(tmp_path)
    assert [each.name for each in found.run.sides] == ["off", "remote", "auto"]
    assert found.is_complete and all(each.failure is None for each in found.requests)
    assert {(each.tokens_in, each.tokens_out, each.finish) for each in found.requests} == {(10, 6, "length")}
    texts = {each.pairing: each.text_hash for each in found.requests if each.side == "off"}
    assert all(texts[each.pairing] == each.text_hash for each in found.requests)  # whoever drafts
    drafted = [each.speculation for each in found.requests if each.side == "remote"]
    assert all(each is not None and each.rounds is not None for each in drafted)


@pytest.mark.parametrize(
    ("stand_in", "message"),
    [
        (StandIn(paths=()), "has neither {url}/completions nor {url}/chat/completions (status 404): mend the address"),
        (StandIn(key="k"), "a requires another key ({url}): name the variable of its key by --key a=…"),
        (StandIn(counts=False), "a counts no tokens at the end of a stream"),
        (StandIn(refuses=lambda body: "bad weather"), "a refuses a text of one token at {url}: bad weather"),
        (StandIn(paths=("/v1/chat/completions",)), "the case mine needs completions, and a has none"),
        (StandIn(stream=lambda body: ["no json"]), "the reply is no stream of completions"),
        (StandIn(stream=lambda body: []), "the reply has no server-sent events of completions"),
    ],
)
def test_an_endpoint_that_lacks_something_is_named(
    stand_in: StandIn, message: str, tmp_path: Path, cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stand_in.served() as url:
        assert bench(tmp_path, "--cases", cases, "--side", f"a={url}") == 1
        assert message.format(url=url) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_failures_of_single_requests_are_records_and_asked_again(
    tmp_path: Path, cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stream(body: Json) -> list[object]:
        events = stand_in.events(body)
        breaks = len(stand_in.asked) <= 5 and body["max_tokens"] > 1 and body["prompt"].startswith("a")
        return events[:3] if breaks else events

    stand_in = StandIn(stream=stream, refuses=lambda body: "no salt" if "cache_salt" in body else None)
    with stand_in.served() as url:
        assert bench(tmp_path, "--cases", cases, "--side", f"a={url}", "--repetitions", 1) == 1
        failures = [each.failure and each.failure.kind for each in results(tmp_path).requests]
        assert sorted(map(str, failures)) == ["None", "None", "cut", "cut"]
        assert "2 of 4 requests failed, the first of a in mine: the stream ended without" in capsys.readouterr().err
        asked = len(stand_in.asked)
        assert main(["bench", "--resume", str(tmp_path / "out")]) == 0
        assert len(stand_in.asked) - asked == 3  # the two, and one to warm up
    assert all(each.failure is None for each in results(tmp_path).requests) and results(tmp_path).is_complete
    assert all("cache_salt" not in body for body in stand_in.asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--side", "a=h", "--case", "cod"], "no case 'cod' (files of your own: --cases); did you mean code?"),
        ([], "no side is named"),
        (["--side", "a=127.0.0.1:9", "--case", "code"], "no endpoint answers for a at http://127.0.0.1:9/v1"),
        (["--resume", "gone"], "gone is no folder of 'drafter bench'"),
    ],
)
def test_bad_input_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_flags_that_do_not_go_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--resume", "x", "--seed", "3"])
    assert "--resume: the run in x has its own --seed, leave it out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "--repetitions", "0"])
    assert "must be in [1, 1000], got 0" in capsys.readouterr().err
