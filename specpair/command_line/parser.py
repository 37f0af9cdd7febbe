"""The argument parser of every command. An error takes two lines: one names the mistake, one says where help is."""

import argparse
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from specpair.command_line.setting_sources import FILE, VARIABLE
from specpair.command_line.setting_values import advice, home
from specpair.extras import installed_version

KEY = "KEY"  # the placeholder of a secret's value; errors never show the value of such a flag
_EXAMPLES = "examples:"
_ABSENT = object()  # instead of the value of a flag that was not given
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse's rule for a negative number, which is a value and not a flag

_WORDS = {
    **dict.fromkeys(("yes", "y", "true", "t", "on", "1"), True),
    **dict.fromkeys(("no", "n", "false", "f", "off", "0"), False),
}  # those that variables and the file take, too


class OneOf(tuple[str, ...]):
    """Choices that help and errors list. Choices in `hidden` are accepted but not listed.

    `further` gives more, which errors list. It is called only for a value that is none of the others: it may take long.
    """

    hidden: frozenset[str]
    further: Callable[[], Sequence[str]]

    def __new__(
        cls, shown: Sequence[str], hidden: Sequence[str] = (), further: Callable[[], Sequence[str]] = tuple
    ) -> "OneOf":
        self = super().__new__(cls, shown)
        self.hidden, self.further = frozenset(hidden), further
        return self

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or value in self.hidden or value in self.further()


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviated flags, with help in groups that ends with examples.

    For arguments that it does not accept, it exits with status 2 and two lines on standard error. The first line begins
    with the name of the program and names the mistake, with the nearest flag, command or choice if one is close.
    """

    def __init__(
        self, prog: str, *, usage: str, description: str, examples: Sequence[str], commands: Sequence[str] = ()
    ) -> None:
        """`usage`: lines to print after the program's name.
        `commands`: words that select another parser.
        """
        first, *others = usage.splitlines()
        super().__init__(
            prog=prog,
            usage="\n".join([f"{prog} {first}", *(f"       {prog.split()[0]} {line}" for line in others)]),
            description=description,
            epilog="\n".join([_EXAMPLES, *(f"  {example}" for example in examples)]),
            formatter_class=_Help,
            allow_abbrev=False,
            add_help=False,
        )
        self._commands = tuple(commands)
        self.add_argument("-h", "--help", action="help", help="show this help and exit")
        self.add_argument("--version", action=_Version, help="show the version and exit")

    def add_config_flags(self) -> None:
        """Add the flags of a command whose settings can also come from the environment and from a file."""
        self.add_argument(
            "--config",
            metavar="FILE",
            type=home,
            help=f"settings file (default: the file in the variable {VARIABLE}, else {FILE} in the working "
            f"folder, if it exists)",
        )
        self.add_argument(
            "--print-config", action="store_true", help="show each setting and where its value came from, and exit"
        )

    def parse(self, given: Sequence[str], optional: Collection[str] = ()) -> argparse.Namespace:
        """Parse the arguments. Unknown flags are reported before missing values that they cause.

        `optional`: names of flags that are in the result only if they were given.
        """
        given = self._written_out(given)
        options, rest = self.parse_known_args(given, argparse.Namespace(**dict.fromkeys(optional, _ABSENT)))
        if words := [word for word in rest if word != "--"]:
            self._refuse_word(words[0], given)
        return argparse.Namespace(**{name: value for name, value in vars(options).items() if value is not _ABSENT})

    def print_help(self, file: Any = None) -> None:
        """Print the help. Raises OSError, which argparse would drop."""
        print(self.format_help(), end="", file=file)

    def actions(self) -> list[argparse.Action]:
        """All flags, in the order of the help."""
        return [action for group in self._action_groups for action in group._group_actions]

    def _written_out(self, given: Sequence[str]) -> list[str]:
        """The arguments, with each switch and its word joined to one flag. Refuses unknown flags."""
        known = self._option_string_actions
        written: list[str] = []
        before = ""  # the argument before
        for at, argument in enumerate(given):
            name, equals, word = argument.partition("=")
            if argument == "--" or name in ("-h", "--help", "--version"):  # these are answered whatever follows them
                return [*written, *given[at:]]
            is_flag = name.startswith("-") and name != "-" and " " not in argument and not _NUMBER.match(argument)
            if is_flag and name not in known:
                self._refuse_flag(name, argument, before)
            action, switch = known.get(name), known.get(before)
            if isinstance(action, Switch) and equals:
                if word.casefold() not in _WORDS:
                    self.error(f"{name}: {word!r} is neither yes nor no")
                argument = action.spelled(name, word)
            elif isinstance(switch, Switch) and argument.casefold() in _WORDS:
                argument = switch.spelled(written.pop(), argument)
            written.append(argument)
            before = given[at]
        return written

    def _refuse_flag(self, name: str, argument: str, before: str) -> NoReturn:
        known = self._option_string_actions
        meant = advice(name, [flag for flag in known if flag.startswith("--")], listed=False)
        if before in known and known[before].nargs is None and not meant:  # it wants a value
            if known[before].metavar == KEY:
                self.error(f"{before} wants a value; write {before}={KEY} if it begins with a dash")
            self.error(f"{before} wants a value; write {before}={argument} if it is {argument}")
        self.error(f"no flag {name}{meant}")

    def _refuse_word(self, word: str, given: Sequence[str]) -> NoReturn:
        if word in self._commands:
            self.error(f"{word} comes first: {self.prog} {word} …")
        before = given[max(0, given.index(word) - 1)]
        if isinstance(self._option_string_actions.get(before), Switch):
            self.error(f"{before}: {word!r} is neither yes nor no{self._of_prompts}")
        if self._commands and word == given[0]:
            if " " not in word and (meant := advice(word, self._commands, listed=False)):
                self.error(f"no command {word}{meant}")
            self.error(f"no command {word!r}; the commands are {', '.join(self._commands)}{self._of_prompts}")
        self.error(f"{word!r} belongs to no flag; a value with spaces needs quotes")

    @property
    def _of_prompts(self) -> str:
        """The error for a word that may be a prompt."""
        return ", a prompt follows --prompt" if "--prompt" in self._option_string_actions else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        complaint = None if action.choices is None else unknown_choice(value, action.choices)
        if complaint is not None:
            named = "".join(f"{flag}: " for flag in action.option_strings[-1:])
            self.error(named + complaint + ("" if named else self._of_prompts))

    def error(self, message: str) -> NoReturn:
        """Print `message` in one line and where help is, and exit with status 2."""
        program, *command = self.prog.split()
        line = " ".join(message.removeprefix("argument ").splitlines())
        # Without the program's name: it may have been started as `python -m …`, and not be on the path.
        self.exit(2, f"{program}: {line}\n{program}: '{' '.join([*command, '--help'])}' lists the flags\n")


Parsers = Mapping[str, Callable[[], Parser]]  # by command, such as "drafter bench report"; the program itself is first


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def meaning(action: argparse.Action) -> str:
    """The help of a flag, in one line, as `--help` shows it."""
    return " ".join((str(action.help) % {"default": action.default}).split())


def placeholder(action: argparse.Action) -> str:
    """The placeholder in the help for a flag's value or an argument; empty: the flag takes no value."""
    if action.nargs == 0:
        return ""
    return str(action.metavar or action.dest) if action.choices is None else "{" + ",".join(action.choices) + "}"


def unknown_choice(value: object, known: Iterable[Any]) -> str | None:
    """The error for a value that is not among the choices, `OneOf` or others; None: the value is a choice."""
    if value in known:  # also one that `OneOf` does not list
        return None
    choices = [str(choice) for choice in known]
    if isinstance(known, OneOf):
        choices += [choice for choice in known.further() if choice not in choices]
    return f"no {value!r}{advice(str(value), choices)}"


class Switch(argparse.Action):
    """A yes-or-no flag: `--name`, `--no-name`, `--name yes`, `--name=no`. argparse never sees the words."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str, default: bool | None = False) -> None:
        """`default`: None for a flag that has no value unless it is given."""
        contrary = [f"--no-{flag[2:]}" for flag in option_strings]
        super().__init__([*option_strings, *contrary], dest, nargs=0, default=default, help=help)

    def __call__(self, parser: Any, options: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(options, self.dest, not str(option).startswith("--no-"))

    def spelled(self, flag: str, word: str) -> str:
        """`flag`, or its negation if `word`, one of `_WORDS`, means no."""
        said = _WORDS[word.casefold()]
        return self.option_strings[(flag == self.option_strings[0]) is not said]


class _Version(argparse.Action):
    """Looks up the version only when asked for: the look-up takes longer than parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"{parser.prog.split()[0]} {installed_version()}")
        parser.exit()


class _Help(argparse.RawDescriptionHelpFormatter):
    """A formatter with room for long flags, which leaves examples as written."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, max_help_position=26, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # flags stay whole
