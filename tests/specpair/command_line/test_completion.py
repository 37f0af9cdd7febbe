"""What bash, zsh and fish offer at the end of a line of `drafter`, by the scripts that it prints."""

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from drafter_client.cli.commands import COMMANDS, serve_parser
from drafter_client.cli.program import parsers
from specpair.command_line.completion import SHELLS, script
from specpair.command_line.parser import Parsers
from specpair.own_commands import COMMANDS as OWN
from specpair.own_commands import parsers as specpair_parsers
from tests.terminal.pseudo import Terminal, terminal
from verifier_server.flags import SERVE
from verifier_server.program import parsers as verifier_parsers

Offered = Callable[[str], list[str]]  # the words that a shell offers at the end of a line, in any order
PROGRAM = "drafter"
# Readline and zle insert all completions at once, and the program, a function, prints what it is given.
_PRINTS = f"{PROGRAM}() {{ printf '<%s>' begin \"$@\" end$((calls += 1)); echo; }}\n"
_BASH = f"""\
PS1='>' HISTFILE=
set +o emacs -o vi; set -o emacs
bind 'set enable-bracketed-paste off'
bind '"\\C-t": insert-completions'
{_PRINTS}"""
_ZSH = f"""\
PS1='>'
autoload -U compinit && compinit -D -u
zstyle ':completion:*' list-grouped no
_all() {{ _main_complete; compstate[insert]=all; compstate[list]= }}
zle -C all complete-word _all
bindkey -e
bindkey '^T' all
unset zle_bracketed_paste
{_PRINTS}"""


def offered_by(shell: str, script: str, folder: Path) -> Iterator[Offered]:
    """What a shell offers in a folder. Skips the test where the shell is not there."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    completions, start = folder / ".completions", folder / ".start"
    completions.write_text(script, encoding="utf-8")
    if shell == "fish":
        yield lambda line: _by_fish(line, folder)
        return
    start.write_text(f"{_BASH if shell == 'bash' else _ZSH}source {completions}\n", encoding="utf-8")
    command = {"bash": ["bash", "--noprofile", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    with terminal(command, 2000, HOME=str(folder), INPUTRC="/dev/null") as shown:
        shown.type(f"cd {folder}; source {start}; printf 'rea%s\\n' dy\n")
        shown.wait_for("ready")
        calls = count(1)
        yield lambda line: _inserted(shown, line, next(calls))


def _inserted(shown: Terminal, line: str, call: int) -> list[str]:
    """The words behind those of the line, once its last one is completed in all ways.

    `call`: how many lines were asked for, with this one.
    """
    shown.type(f"{line}\x14\n")
    shown.wait_for(f"<end{call}>")
    given = re.findall(r"<([^<>]*)>", shown.text.rpartition("<begin>")[2])[:-1]
    before = line.split()[1:] if line.endswith(" ") else line.split()[1:-1]
    return given[len(before) :]


def _by_fish(line: str, folder: Path) -> list[str]:
    asked = f"source ./.completions; complete -C '{line}'"
    ran = subprocess.run(["fish", "--no-config", "-c", asked], cwd=folder, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return [each.partition("\t")[0] for each in ran.stdout.splitlines()]


MODES = {"remote", "fused", "target", "auto"}


@pytest.mark.parametrize(
    ("parsers", "words"),
    [(parsers(), COMMANDS), (verifier_parsers(), SERVE.commands), (specpair_parsers(), OWN)],
)
def test_each_command_of_a_program_has_a_parser(parsers: Parsers, words: tuple[str, ...]) -> None:
    _, *others = parsers
    assert sorted(words) == sorted(each.split()[1] for each in others if len(each.split()) == 2)
    assert [parsers[each]().prog for each in others] == others


@pytest.fixture(scope="module", params=SHELLS)
def offered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offered]:
    folder = tmp_path_factory.mktemp("shell")
    for name in ("runs", "notes"):
        (folder / name).mkdir()
    for name in ("run.jsonl", "with space.txt"):
        (folder / name).touch()
    yield from offered_by(request.param, script(request.param, parsers()), folder)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("drafter ", set(COMMANDS)),
        ("drafter co", {"compare", "completion", "corpus"}),
        ("drafter bench ", {"report"}),
        ("drafter --mode ", MODES),
        ("drafter chat --cache-salt no --mode ", MODES),
        ("drafter chat --no-mar", {"--no-markdown"}),
        ("drafter chat --sources --strategy p", {"probabilistic"}),
        ("drafter corpus ", {"build"}),
        ("drafter models ", {"list", "pull", "remove", "show", "check", "suggest"}),
        ("drafter models --verifier bigbox s", {"show", "suggest"}),
        ("drafter models --verifier http://127.0.0.1:8000 show --js", {"--json"}),
        ("drafter key --sessions 3 ", {"new", "list", "revoke"}),
        ("drafter solo ", {"target", "draft", "server"}),
    ],
)
def test_commands_flags_and_choices(offered: Offered, line: str, words: set[str]) -> None:
    assert set(offered(line)) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("drafter --prompt-file ru", {"runs", "run.jsonl"}),
        ("drafter chat --json-schema ru", {"runs", "run.jsonl"}),
        ("drafter --prompt-file wi", {"with space.txt"}),
        ("drafter report ", {"runs", "notes"}),  # folders only
        ("drafter --profile ", {"runs", "notes"}),
        ("drafter bench report ", {"runs", "notes"}),
    ],
)
def test_files_and_folders_where_they_are_expected(offered: Offered, line: str, words: set[str]) -> None:
    assert {each.rstrip("/") for each in offered(line)} == words


def test_all_flags_of_a_command(offered: Offered) -> None:
    shown = [action for action in serve_parser().actions() if action.help != argparse.SUPPRESS]
    flags = {name for action in shown for name in action.option_strings if name.startswith("--")}
    assert set(offered("drafter serve --")) == flags


@pytest.mark.parametrize("line", ["drafter --prompt ", "drafter chat --seed ", "drafter models pull "])
def test_nothing_for_a_text(offered: Offered, line: str) -> None:
    assert [each for each in offered(line) if not each.startswith("-")] == []
