"""Completions for zsh: a function for a folder of `fpath`, which may also be sourced."""

from collections.abc import Iterator, Sequence

from specpair.command_line.completion.accepted import Argument, Command, Flag, Kind, Value
from specpair.command_line.completion.template import fill

_SCRIPT = """\
#compdef @program@
# Completions of @program@ for zsh, made by '@program@ completion zsh'.
_@program@() {
    local command=@program@ at=2
    local -a commands
    while (( at < CURRENT )); do
        case "$command $words[at]" in
        (@known@) command+=" $words[at]"; (( at++ )) ;;
        (*) break ;;
        esac
    done
    # The command is one word for _arguments, which reads what follows it.
    words=("$command" "${(@)words[at,-1]}")
    (( CURRENT -= at - 2 ))
    case $command in
@commands@
    esac
}

if [[ $funcstack[1] == _@program@ ]]; then
    _@program@ "$@"
else
    compdef _@program@ @program@
fi
"""


def script(program: str, commands: Sequence[Command]) -> str:
    """The script."""
    known = "|".join(f"'{each.path} {word}'" for each in commands for word in each.commands)
    does = {each.path: each.does for each in commands}
    branches = "\n".join(line for each in commands for line in _branch(each, does))
    return fill(_SCRIPT, {"program": program, "known": known, "commands": branches})


def _branch(command: Command, does: dict[str, str]) -> Iterator[str]:
    yield f"    ('{command.path}')"
    specs = [spec for flag in command.flags for spec in _flag(flag)]
    if command.commands:
        described = (f"{word}:{does[f'{command.path} {word}']}" for word in command.commands)
        yield f"        commands=({' '.join(map(_quoted, described))})"
        specs.append(_quoted("1: :{_describe command commands}"))
    specs += [_argument(at + 1, each) for at, each in enumerate(command.arguments)]
    yield from (f"        {line}" for line in ["_arguments -S : \\", *(f"    {spec} \\" for spec in specs)])
    yield "            && return"
    yield "        ;;"


def _flag(flag: Flag) -> Iterator[str]:
    """A specification for each spelling of a flag, which excludes the others unless it repeats."""
    excluded = "" if flag.repeats else f"({' '.join(flag.names)})"
    words = flag.does.replace("[", "\\[").replace("]", "\\]")
    for name in flag.names:
        repeats = "*" if flag.repeats else ""
        # One with two dashes may have its value behind an equals sign.
        spelled = f"{name}=" if flag.value is not None and name.startswith("--") else name
        value = "" if flag.value is None else f":{_value(flag.value)}"
        yield _quoted(f"{excluded}{repeats}{spelled}[{words}]{value}")


def _argument(at: int, argument: Argument) -> str:
    place = "*" if argument.repeats else str(at)
    return _quoted(f"{place}:{':' if argument.optional and not argument.repeats else ''}{_value(argument.value)}")


def _value(value: Value) -> str:
    """The message and the action of a specification."""
    actions = {
        Kind.TEXT: " ",
        Kind.FILE: "_files",
        Kind.FOLDER: "_files -/",
        Kind.CHOICE: f"({' '.join(value.choices)})",
    }
    return f"{value.name.replace(':', chr(92) + ':')}:{actions[value.kind]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
