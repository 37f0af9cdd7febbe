"""Help and errors on the command line: every flag and examples that parse; one plain sentence, and an exit status."""

import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import ByteVocabulary, ScriptedBackend
from drafter_client import draft_sources
from drafter_client.cli import program
from drafter_client.cli.commands import (
    chat_options,
    chat_parser,
    compare_options,
    compare_parser,
    drafter_options,
    drafter_parser,
    solo_options,
    solo_parser,
)
from specpair.command_line.parser import Parser
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, serve_vocabulary
from tests.paths import ROOT

PARSERS = {
    "": drafter_parser,
    "chat": chat_parser,
    "solo": solo_parser,
    "compare": compare_parser,
}
GROUPS = {
    "": "options text many_prompts verifier drafting engine_of_the_draft_model sampling grammar acceptance output "
    "examples",
    "chat": "options text verifier drafting engine_of_the_draft_model sampling grammar acceptance output examples",
    "solo": "options model text verifier engine sampling grammar output examples",
    "compare": "options texts verifier drafting engine_of_the_draft_model sampling grammar output examples",
}
EACH = pytest.mark.parametrize("command", list(PARSERS))


def _help(drafter: Command, command: str) -> str:
    ran = drafter(*command.split(), "--help")
    assert (ran.status, ran.err) == (0, "")
    return ran.out


@EACH
@pytest.mark.parametrize("width", [80, 100])
def test_the_help_fits_and_names_every_flag(
    drafter: Command, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = _help(drafter, command)
    assert max(map(len, text.splitlines())) <= width
    parser: Parser = PARSERS[command]()
    known = {flag for action in parser.actions() for flag in action.option_strings if flag.startswith("--")}
    listed = re.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)(?:, (--no-[a-z-]+))?", text)
    assert known <= {flag for flags in listed for flag in flags}
    titles = re.findall(r"(?m)^(\w[\w ]*):$", text)
    assert [title.replace(" ", "_") for title in titles] == GROUPS[command].split()


@EACH
def test_the_help_has_three_examples_that_parse(drafter: Command, command: str) -> None:
    examples = _help(drafter, command).partition("examples:\n")[2].splitlines()
    assert len(examples) == 3
    reads = {"chat": chat_options, "solo": solo_options, "compare": compare_options}
    for example in examples:
        program, *flags = shlex.split(example)
        assert program == "drafter"
        if command:
            assert flags.pop(0) == command
        reads.get(command, drafter_options)(flags)


@EACH
def test_the_engine_for_tests_is_hidden_and_works(drafter: Command, command: str) -> None:
    assert "scripted" not in _help(drafter, command)
    ran = drafter("solo", "--backend", "scripted", "--model", "1", "--prompt", "x", "--max-tokens", "2", "--json")
    assert ran.status == 0


def test_a_variable_that_is_close_to_the_key_is_refused(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTER_APIKEY", "sesame")
    ran = drafter("--prompt", "x")
    assert ran.status == 2 and ran.err.splitlines() == [
        "drafter: DRAFTER_APIKEY: no such variable; did you mean DRAFTER_API_KEY?",
        "drafter: '--help' lists the flags",
    ]


def test_unknown_variables_are_reported_except_those_of_kubernetes(
    drafter: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTER_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("DRAFTER_PORT", "tcp://10.0.0.7:8000")
    monkeypatch.setenv("DRAFTER_COLOUR", "blue")
    ran = drafter("solo", "--prompt", "")
    assert ran.err.splitlines() == [
        "drafter: DRAFTER_COLOUR: nothing reads this variable, and it is ignored",
        "drafter: the prompt is empty: give at least one character to continue, with --prompt or in standard input",
    ]


def _flags(verifier: Verifier, *more: str) -> list[str]:
    return ["--verifier", verifier.url, *TOY, "--prompt", "def f(x):", "--max-tokens", "24", *more]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--draft-n", "many"], "--draft-n: 'many' is neither auto nor a whole number"),
        (["--branches", "65"], "--branches: must be in [1, 64], got 65"),
        (["--max-tokens", "0"], "--max-tokens: must be at least 1, got 0"),
        (["--temperature", "nan"], "--temperature: must be in [0, 100], got nan"),
        (["--top-p", "0"], "--top-p: must be in (0, 1], got 0"),
        (["--seed", str(2**53)], f"--seed: must be in [0, 2**53), got {2**53}"),
        (["--context", "7"], "--context: must be at least 8, got 7"),
        (["--threads", "0"], "--threads: must be in [1, 1024], got 0"),
        (["--backend", "abacus"], "--backend: no 'abacus'; choose one of llama_cpp, torch, mlx, neuron_legacy, ngram"),
        (["--prompt", "a", "--prompt-file", "b"], "--prompt-file: not allowed with argument --prompt"),
        (["--profile", ""], "--profile: is empty: name a file or a folder"),
        (["--backend", "ngram", "--draft-model", "x.gguf"], "--draft-model: --backend ngram drafts without a model"),
        (
            ["solo", "--verifier", "http://v"],
            "--verifier: with 'solo target' the model runs here, 'solo server' asks a",
        ),
        (["solo", "server", "--threads", "1"], "--threads: with 'solo server' the model runs on the verifier"),
        (["solo", "draft", "--model", "x.gguf"], "--model: 'solo draft' is the shipped draft model"),
        (["solo", "twin"], "no 'twin'; choose one of target, draft, server"),
        (
            ["--prompt-file", "a", "--baseline"],
            "--baseline: is measured beside one text, compare many with 'drafter",
        ),
        (["--prompt-file", "a", "--output", "b", "--json"], "--json: --output writes the same lines, leave one of"),
        (["--prompt-file", "a", "--concurrency", "65"], "--concurrency: must be in [1, 64], got 65"),
        (["--concurrency", "2"], "--concurrency: is for many prompts, give them with --prompt-file"),
        (["--prompt", "a", "--output", "b"], "--output: is for many prompts, give them with --prompt-file"),
        (["solo", "--prompt-file=a"], "no flag --prompt-file"),
        (["--promt", "x"], "no flag --promt; did you mean --prompt?"),
        (["--prompt", "-1x"], "--prompt wants a value; write --prompt=-1x if it is -1x"),
        (["sole"], "no command sole; did you mean solo?"),
        (
            ["def main():"],
            "no command 'def main():'; the commands are chat, serve, solo, compare, tune, bench, report, models, "
            "corpus, join, hosts, leave, key, invite, unshare, cert, completion, a",
        ),
        (["--prompt", "def", "main():"], "'main():' belongs to no flag; a value with spaces needs quotes"),
        (["--json", "solo"], "solo comes first: drafter solo"),
        (["--no-stream=soon"], "--no-stream: 'soon' is neither yes nor no"),
        (["--chat", "Why is the sky blue?"], "--chat: 'Why is the sky blue?' is neither yes nor no, a prompt follows"),
    ],
)
def test_a_bad_flag_is_named_with_what_it_takes(drafter: Command, flags: list[str], complaint: str) -> None:
    ran = drafter(*flags)
    assert ran.status == 2 and ran.out == ""
    message, hint, rest = ran.err.split("\n")
    assert message.startswith(f"drafter: {complaint}") and rest == ""
    assert hint == f"drafter: '{'solo ' if flags[0] == 'solo' else ''}--help' lists the flags"


@pytest.mark.parametrize(
    ("flags", "stdin", "complaint"),
    [
        ([], None, "no prompt: give --prompt, or pipe one into standard input"),
        ([], b"", "the prompt is empty: give at least one character to continue, with --prompt or in standard input"),
        ([], b"caf\xe9", "standard input is not UTF-8 text"),
        (
            ["--prompt", ""],
            None,
            "the prompt is empty: give at least one character to continue, with --prompt or in standard input",
        ),
        (["--prompt", "\udcff"], None, "the prompt is not valid text in this terminal's encoding: use UTF-8"),
    ],
)
@pytest.mark.parametrize("solo", [[], ["solo"], ["solo", "server"]], ids=["pair", "solo", "solo server"])
def test_a_missing_prompt_is_refused_before_loading(
    drafter: Command, solo: list[str], flags: list[str], stdin: bytes | None, complaint: str
) -> None:
    ran = drafter(*solo, *flags, stdin=stdin)
    assert (ran.status, ran.out, ran.err) == (1, "", f"drafter: {complaint}\n")


class _NoSpaces(ByteVocabulary):
    """Has no begin token, and drops spaces."""

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return list(text.strip().encode())


@pytest.mark.parametrize("command", ["pair", "ngram", "solo"])
def test_a_prompt_without_tokens_is_empty(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    flags = ["--prompt", "   "]
    if command != "solo":
        serve_vocabulary(monkeypatch, verifier.service, _NoSpaces())
    if command == "ngram":
        flags += ["--verifier", verifier.url, "--backend", "ngram"]
    else:
        blind = ScriptedBackend()
        blind.vocabulary = _NoSpaces()
        load = "load" if command == "solo" else "load_draft"
        monkeypatch.setattr(draft_sources, load, lambda name, options, progress: blind)
        flags = ["solo", *flags] if command == "solo" else [*flags, "--verifier", verifier.url, *TOY]
    ran = drafter(*flags)
    complaint = "the model reads the prompt as empty: give at least one character that is no space"
    assert (ran.status, ran.out, ran.err) == (1, "", f"drafter: {complaint}\n")


def test_without_standard_input_a_prompt_is_required(
    drafter: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as under `<&-`
    assert program.main([]) == 1
    assert capsys.readouterr().err.startswith("drafter: no prompt: give --prompt")


def test_a_system_message_needs_chat(drafter: Command) -> None:
    ran = drafter("--prompt", "a", "--system", "b")
    assert (ran.status, ran.err) == (1, "drafter: --system is a message of a chat: add --chat\n")
    ran = drafter("--prompt", "a", "--chat", "--system", "\udcff")
    assert ran.err == "drafter: the system message is not valid text in this terminal's encoding: use UTF-8\n"


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_an_unreachable_verifier_is_reported_in_one_line(drafter: Command, json: list[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = drafter("--verifier", url, *TOY, "--prompt", "a", *json)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"drafter: no verifier answers at {url} (")
    assert ran.err.endswith("is it running, and is the port right?\n")


@pytest.mark.parametrize("mode", ["remote", "auto"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_more_draft_tokens_than_the_verifier_judges_are_refused(
    drafter: Command, verifier: Verifier, tmp_path: Path, mode: str, many: bool
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\nb\n")
    text = ["--prompt-file", str(prompts)] if many else ["--prompt", "a"]
    flags = ["--verifier", verifier.url, *TOY, *text, "--max-tokens", "4", "--mode", mode]
    ran = drafter(*flags, "--draft-n", "65")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "drafter: --draft-n: must be at most 64, as many as this verifier judges at once, got 65\n"
    assert drafter(*flags, "--draft-n", "64").status == 0


def test_a_service_without_its_draft_model_does_not_wait_for_a_verifier_first(drafter: Command) -> None:
    ran = drafter("serve", "--verifier", "http://127.0.0.1:9", "--draft-model", "/nowhere/x.gguf")
    assert ran.status == 2 and ran.err.startswith("drafter: --draft-model: no such file: /nowhere/x.gguf\n")


def test_characters_that_the_output_lacks_do_not_end_the_run(verifier: Verifier) -> None:
    ran = _program(verifier, "--max-tokens", "200", "--verbose", PYTHONIOENCODING="ascii")
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False)
    assert b"?" in ran.stdout and b"acceptance rate" in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_a_full_disk_is_reported(verifier: Verifier, more: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ran = _program(verifier, "--max-tokens", "20", *more, stdout=full)
    assert ran.returncode == 1
    assert ran.stderr == b"drafter: the output cannot be written: No space left on device\n"
    assert verifier.sessions == 0


def _program(
    verifier: Verifier, *more: str, stdout: Any = subprocess.PIPE, **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "drafter_client", *_flags(verifier), *more]
    return subprocess.run(
        command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, **environment}, check=False
    )
