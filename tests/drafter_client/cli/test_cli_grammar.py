"""Flags of grammars: from a file or the command line, in each command and in files of prompts."""

import json
import threading
from pathlib import Path

import pytest
from llguidance import LLTokenizer

from backends.scripted import Script, ScriptedBackend
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar import compiling
from specpair.grammar.tokenizer import tokenizer_of as made
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier, serving

TEXT = ["--prompt", "def f(x):", "--max-tokens", "80", "--seed", "3", "--temperature", "1"]
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
def test_each_command_keeps_to_the_grammar(
    drafter: Command, verifier: Verifier, tmp_path: Path, command: str, matches: object
) -> None:
    there = ["--verifier", verifier.url]
    how = {
        "pair": [*there, "--backend", "scripted", "--draft-model", "1"],
        "target": [*there, "--mode", "target"],
        "solo": ["solo", "--backend", "scripted", "--model", "1"],
    }[command]
    for pattern, flags in files(tmp_path).items():
        ran = drafter(*how, *TEXT, *flags, "--json")
        assert (ran.status, ran.err) == (0, "")
        assert callable(matches) and matches(pattern, json.loads(ran.out)["text"])


@pytest.mark.parametrize("size", [258, 300])  # the target's: the draft model has 258 ids
def test_a_flag_has_the_vocabularies_read_before_the_text(
    drafter: Command, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    threads = list[threading.Thread]()

    def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
        threads.append(threading.current_thread())
        return made(vocabulary)

    with serving(ScriptedBackend(Script(seed=1, vocabulary_size=size), slots=4)) as verifier:
        monkeypatch.setattr(compiling, "tokenizer_of", tokenizer_of)
        pair = ["--verifier", verifier.url, "--backend", "scripted", "--draft-model", "1", *TEXT]
        for flags in ([], ["--regex", "[ab]{2,4}"]):
            assert drafter(*pair, *flags).status == 0
            assert set(threads) == ({threading.main_thread()} if flags else set())
    assert len(threads) == (1 if size == 258 else 2)


@pytest.fixture
def matches() -> object:
    import re

    return lambda pattern, text: re.fullmatch(pattern, text)


def test_a_file_of_prompts_may_have_them(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    lines = [
        {"prompt": "a", "json_schema": SCHEMA | {"additionalProperties": False}},
        {"prompt": "b", "choice": ["left", "right"]},
        {"prompt": "c"},
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    there = ["--verifier", verifier.url, "--backend", "scripted", "--draft-model", "1"]
    ran = drafter(*there, "--prompt-file", str(tmp_path / "prompts.jsonl"), "--max-tokens", "60", "--json")
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
    ran = drafter(*TEXT, *flags)
    assert ran.status == 2 and complaint in ran.err
