"""Asks real shells what they offer at the end of a line, with a script of completions."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.terminal.pseudo import Terminal, terminal

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
