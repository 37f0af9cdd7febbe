"""Completions for bash. They need no other package, and work with bash 3.2, as on a Mac."""

from collections.abc import Iterable, Sequence

from specpair.command_line.completion.accepted import Command, Kind, Value
from specpair.command_line.completion.template import fill

# What is completed is in `takes`: empty for nothing in particular, `text`, `file`, `folder`, or `choice` with words
# behind it.
_SCRIPT = """\
# Completions of @program@ for bash, made by '@program@ completion bash'.
_@program@_takes() {
    # What flag $2 of command $1 takes.
    takes=
    case "$1 $2" in
@takes@
    esac
}

_@program@_argument() {
    # What argument $2 of command $1 is, counted from 0.
    takes=
    case "$1 $2" in
@arguments@
    esac
}

_@program@() {
    local IFS=$' \\t\\n' word=$2 command=@program@ takes='' argument=0 flags='' at each
    [[ $word != '=' ]] || word=
    for ((at = 1; at < COMP_CWORD; at++)); do
        case "$command ${COMP_WORDS[at]}" in
        @known@) command+=" ${COMP_WORDS[at]}" ;;
        *) break ;;
        esac
    done
    # bash takes --flag=value for three words, and http://host for three or more.
    for (( ; at < COMP_CWORD; at++)); do
        each=${COMP_WORDS[at]}
        if [[ $each == '=' || $each == : || ${COMP_WORDS[at - 1]} == : ]]; then
            continue
        elif [[ -n $takes ]]; then
            takes=
        elif [[ $each == -* ]]; then
            _@program@_takes "$command" "$each"
        else
            argument=$((argument + 1))
        fi
    done
    if [[ -z $takes && $word != -* ]]; then
        _@program@_argument "$command" "$argument"
    fi
    if [[ -z $takes ]]; then
        case $command in
@flags@
        esac
        takes="choice $flags"
    fi
    COMPREPLY=()
    case $takes in
    file) compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$word")) ;;
    folder) compopt -o dirnames 2>/dev/null || COMPREPLY=($(compgen -d -- "$word")) ;;
    choice*) COMPREPLY=($(compgen -W "${takes#choice}" -- "$word")) ;;
    esac
}

complete -F _@program@ @program@
"""


def script(program: str, commands: Sequence[Command]) -> str:
    """The script."""
    known = " | ".join(f"'{each.path} {word}'" for each in commands for word in each.commands)
    takes = [
        (flag.value, f"'{command.path} {name}'")
        for command in commands
        for flag in command.flags
        for name in flag.names
        if flag.value is not None
    ]
    filled = {
        "known": known,
        "takes": _cases(takes),
        "arguments": _cases(pair for command in commands for pair in _arguments(command)),
        "flags": "\n".join(
            f"        '{each.path}') flags='{' '.join(name for flag in each.flags for name in flag.names)}' ;;"
            for each in commands
        ),
        "program": program,
    }
    return fill(_SCRIPT, filled)


def _arguments(command: Command) -> Iterable[tuple[Value, str]]:
    if command.commands:
        yield Value(Kind.CHOICE, "command", command.commands), f"'{command.path} 0'"
    for at, each in enumerate(command.arguments):
        # One that repeats is all that follow, up to the tenth.
        yield each.value, f"'{command.path} '[{at}-9]" if each.repeats else f"'{command.path} {at}'"


def _cases(takes: Iterable[tuple[Value, str]]) -> str:
    """The branches that set `takes`, those that set it to the same in one. Their patterns do not overlap."""
    alike: dict[str, list[str]] = {}
    for value, pattern in takes:
        alike.setdefault(" ".join([value.kind.value, *value.choices]), []).append(pattern)
    return "\n".join(f"    {' | '.join(patterns)}) takes='{each}' ;;" for each, patterns in alike.items())
