"""Flags of strategies, logit processors and grammars: the text of each, what the panel says, each decision."""

import json
import re
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier
from tests.specpair.speculation import processed

PROMPT = "def f(x):"
EXACT = ("coupled", "deterministic", "greedy")
ALL = (*EXACT, "probabilistic", "threshold")


def _flags(verifier: Verifier, strategy: str, *more: str) -> list[str]:
    threshold = ["--threshold", "0.2"] if strategy == "threshold" else []
    flags = ["--verifier", verifier.url, *TOY, "--prompt", PROMPT, "--max-tokens", "24", "--strategy", strategy]
    return [*flags, *threshold, *more]


@pytest.mark.parametrize("strategy", ["probabilistic", "threshold"])
def test_strategies_that_depend_on_timing_work_in_lockstep(drafter: Command, verifier: Verifier, strategy: str) -> None:
    report = json.loads(drafter(*_flags(verifier, strategy, "--temperature", "0.8", "--seed", "1", "--json")).out)
    assert report["schedules"] == {"lockstep": 23} and report["accepted"] > 0


@pytest.mark.parametrize("strategy", ALL)
def test_a_baseline_is_the_same_text_with_drafter_invariant_strategies(
    drafter: Command, verifier: Verifier, strategy: str
) -> None:
    ran = drafter(*_flags(verifier, strategy, "--stats", "--baseline", "--temperature", "0.8"))
    assert ("same text" in ran.err) == (strategy in EXACT)
    assert ("another text, as by this strategy it may be" in ran.err) == (strategy not in EXACT)


@pytest.mark.parametrize("mode", ["remote", "auto"])
def test_the_decision_on_each_token_is_shown(drafter: Command, verifier: Verifier, mode: str) -> None:
    flags = ["--verbose", "--temperature", "0.8", "--seed", "3", "--mode", mode]
    ran = drafter(*_flags(verifier, "coupled", *flags))
    head, *lines = [line for line in ran.err.splitlines() if line.startswith("place") or re.match(r" +\d+  [b']", line)]
    assert head.split() == ["place", "token", "p", "draft", "p", "q", "drawn", "verdict"]
    assert [int(line.split()[0]) for line in lines] == list(range(10, 34))
    assert ran.out.endswith("\n") and len(ran.out) > 10, "the text comes at the end"
    responses = {re.split("  +", line)[-1] for line in lines}
    assert "no draft" in responses <= {"no draft", "accepted", "rejected"}


def test_probabilistic_decisions_follow_from_their_numbers(drafter: Command, verifier: Verifier) -> None:
    flags = ["--verbose", "--temperature", "1.5", "--seed", "3", "--draft-n", "4", "--json"]
    ran = drafter(*_flags(verifier, "probabilistic", *flags))
    report = json.loads(ran.out)
    assert ran.err == "" and [each["token"] for each in report["decisions"]] == report["token_ids"]
    judged = [each for each in report["decisions"] if each["draft"] is not None]
    assert len(judged) > 10
    for each in judged:
        assert (each["drawn"] * each["q"] < each["draft_p"]) == (each["verdict"] == "accepted")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--strategy", "threshold"], "--strategy threshold: give the probability above which a draft token is"),
        (["--threshold", "0.5"], "--threshold: --strategy coupled has none, leave one of the two out"),
        (["--strategy", "threshold", "--threshold", "1"], "--threshold: must be in [0, 1), got 1"),
        (["--strategy", "best"], "--strategy: no 'best'; choose one of coupled, "),
        (["--strategy", "probabilistic", "--translate"], "--translate: translated drafts have no distribution"),
        (["--prompt-file", "x", "--verbose"], "--verbose: shows the decisions on one text, give it with --prompt"),
    ],
)
def test_conflicting_flags_are_refused(drafter: Command, flags: list[str], complaint: str) -> None:
    ran = drafter(*flags)
    assert ran.status == 2 and complaint in ran.err


PROCESSORS = [
    "--min-p",
    "0.02",
    "--presence-penalty",
    "0.5",
    "--frequency-penalty",
    "1",
    "--repetition-penalty",
    "1.1",
    "--logit-bias",
    "101=6.5",
    "--logit-bias",
    "102=-100",
    "--temperature",
    "0.9",
    "--seed",
    "4",
]
TEXT = ["--prompt", PROMPT, "--max-tokens", "24"]
SAMPLING = Sampling(
    *(4, 0.9, 0, 1.0),
    min_p=0.02,
    presence_penalty=0.5,
    frequency_penalty=1.0,
    repetition_penalty=1.1,
    logit_bias={101: 6.5, 102: -100.0},
)
REPORTED = {
    "min_p": 0.02,
    "presence_penalty": 0.5,
    "frequency_penalty": 1.0,
    "repetition_penalty": 1.1,
    "logit_bias": {"101": 6.5, "102": -100.0},
}


def _expected() -> list[int]:
    model = ScriptedBackend(Script(seed=1))
    return processed.plain(model.logits_after, model.vocabulary.encode(PROMPT), 24, SAMPLING)


def _commands(verifier: Verifier) -> dict[str, list[str]]:
    there = ["--verifier", verifier.url]
    return {
        "pair": [*there, "--backend", "scripted", "--draft-model", "1"],
        "target": [*there, "--mode", "target"],
        "solo server": ["solo", "server", *there],
        "solo": ["solo", "--backend", "scripted", "--model", "1"],
    }


@pytest.mark.parametrize("command", ["pair", "target", "solo server", "solo"])
def test_each_command_has_the_processors(drafter: Command, verifier: Verifier, command: str) -> None:
    ran = drafter(*_commands(verifier)[command], *TEXT, *PROCESSORS, "--json")
    assert (ran.status, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert report["token_ids"] == _expected()
    plain = {"seed": 4, "temperature": 0.9, "top_k": 0, "top_p": 1.0}
    told = {} if command == "solo" else {"strategy": "coupled", "noise": "gumbel-1"}
    assert report["sampling"] == plain | told | REPORTED


@pytest.mark.parametrize("command", ["pair", "solo"])
def test_a_bias_of_an_unknown_id_is_refused(drafter: Command, verifier: Verifier, command: str) -> None:
    ran = drafter(*_commands(verifier)[command], *TEXT, "--logit-bias", "999=1")
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "999" in ran.err and "token id" in ran.err


LONGER = ["--prompt", "def f(x):", "--max-tokens", "80", "--seed", "3", "--temperature", "1"]
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}


def files(folder: Path) -> dict[str, list[str]]:
    (folder / "schema.json").write_text(json.dumps(SCHEMA | {"additionalProperties": False}), encoding="utf-8-sig")
    (folder / "digits.lark").write_text("start: /[0-9]{3}/\n")
    return {
        r'{"answer": "(yes|no)"}': ["--json-schema", str(folder / "schema.json")],
        "[0-9]{3}": ["--grammar", str(folder / "digits.lark")],
        "[ab]{2,4}": ["--regex", "[ab]{2,4}"],
        "yes|no": ["--choice", "yes", "--choice", "no"],
    }


@pytest.mark.parametrize("command", ["pair", "target", "solo"])
def test_each_command_keeps_to_the_grammar(drafter: Command, verifier: Verifier, tmp_path: Path, command: str) -> None:
    for pattern, flags in files(tmp_path).items():
        ran = drafter(*_commands(verifier)[command], *LONGER, *flags, "--json")
        assert (ran.status, ran.err) == (0, "")
        assert re.fullmatch(pattern, json.loads(ran.out)["text"])


def test_a_file_of_prompts_may_have_them(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    lines = [
        {"prompt": "a", "json_schema": SCHEMA | {"additionalProperties": False}},
        {"prompt": "b", "choice": ["left", "right"]},
        {"prompt": "c"},
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    flags = ["--prompt-file", str(tmp_path / "prompts.jsonl"), "--max-tokens", "60", "--json"]
    ran = drafter(*_commands(verifier)["pair"], *flags)
    assert ran.status == 0, ran.err
    texts = [json.loads(line)["text"] for line in ran.out.splitlines()][:3]
    assert set(json.loads(texts[0])) == {"answer"} and texts[1] in ("left", "right") and len(texts[2]) > 20


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--json-schema", "none.json"], "--json-schema: none.json cannot be read: No such file"),
        (["--json-schema", "bad.json"], "--json-schema: bad.json: is not JSON: "),
        (["--grammar", "latin.lark"], "--grammar: latin.lark is not UTF-8 text"),
        (["--regex", "a", "--choice", "b"], "--choice: give either --regex or --choice"),
        (["--choice", ""], "--choice: is empty: give at least one character"),
    ],
)
def test_bad_values_are_refused(
    drafter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], complaint: str
) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "latin.lark").write_bytes(b"\xff\xe4")
    monkeypatch.chdir(tmp_path)
    ran = drafter(*LONGER, *flags)
    assert ran.status == 2 and complaint in ran.err
