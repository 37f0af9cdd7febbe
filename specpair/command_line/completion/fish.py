"""Completions for fish."""

from collections.abc import Iterator, Sequence

from specpair.command_line.completion.accepted import Command, Flag, Kind, Value
from specpair.command_line.completion.template import fill

_SCRIPT = """\
# Completions of @program@ for fish, made by '@program@ completion fish'.
function __@program@_place --description 'The command, and how many arguments it has before the cursor'
    set -l given (commandline -opc)
    set -e given[1]
    set -l command @program@
    while set -q given[1]
        switch "$command $given[1]"
            case @known@
                set command "$command $given[1]"
                set -e given[1]
            case '*'
                break
        end
    end
    set -l arguments 0
    while set -q given[1]
        switch "$command $given[1]"
            case @takes@
                set -e given[1]
            case "$command -*"
            case '*'
                set arguments (math $arguments + 1)
        end
        set -e given[1]
    end
    echo $command
    echo $arguments
end

function __@program@_at --description 'Whether the command is one of these'
    contains -- (__@program@_place)[1] $argv
end

function __@program@_argument --description 'Whether argument $argv[2] of command $argv[1] comes next'
    test (__@program@_place | string join ' ') = "$argv"
end

complete -c @program@ -e
complete -c @program@ -f
@lines@
"""


def script(program: str, commands: Sequence[Command]) -> str:
    """The script."""
    takes = [
        f"{each.path} {name}"
        for each in commands
        for flag in each.flags
        if flag.value is not None
        for name in flag.names
    ]
    gaps = {
        "program": program,
        "known": _patterns([f"{each.path} {word}" for each in commands for word in each.commands]),
        "takes": _patterns(takes),
        "lines": "\n".join([*_arguments(program, commands), *_flags(program, commands)]),
    }
    return fill(_SCRIPT, gaps)


def _arguments(program: str, commands: Sequence[Command]) -> Iterator[str]:
    does = {each.path: each.does for each in commands}
    for command in commands:
        for word in command.commands:
            first, about = f'__{program}_argument "{command.path}" 0', does[f"{command.path} {word}"]
            yield f"complete -c {program} -n {_quoted(first)} -a {word} -d {_quoted(about)}"
        for at, argument in enumerate(command.arguments):
            there = f'__{program}_argument "{command.path}" {at}'
            if argument.repeats:
                there = f'__{program}_at "{command.path}"; and not __{program}_argument "{command.path}" 0'
            if argument.value.kind is not Kind.TEXT:
                yield f"complete -c {program} -n {_quoted(there)} {_taken(argument.value, required=False)}"


def _flags(program: str, commands: Sequence[Command]) -> Iterator[str]:
    """A line for each flag: one for all commands that have it alike."""
    alike: dict[Flag, list[str]] = {}
    for command in commands:
        for flag in command.flags:
            alike.setdefault(flag, []).append(command.path)
    for flag, paths in alike.items():
        there = " ".join([f"__{program}_at", *(f'"{path}"' for path in paths)])
        taken = "" if flag.value is None else f" {_taken(flag.value, required=True)}"
        yield f"complete -c {program} -n {_quoted(there)} {_names(flag)}{taken} -d {_quoted(flag.does)}"


def _names(flag: Flag) -> str:
    """The spellings of a flag as options of `complete`: long, short, or with one dash before several letters."""
    return " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"
        for name in flag.names
    )


def _taken(value: Value, *, required: bool) -> str:
    match value.kind:
        case Kind.FILE:
            return "-r -F" if required else "-F"
        case Kind.FOLDER:
            return f"{'-x ' if required else ''}-a '(__fish_complete_directories)'"
        case Kind.CHOICE:
            return f"{'-x ' if required else ''}-a {_quoted(' '.join(value.choices))}"
    return "-x"


def _patterns(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
