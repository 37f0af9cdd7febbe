"""Options as flags: the same words, defaults and placeholders in each command's help."""

import argparse
from collections.abc import Collection, Mapping
from typing import Any

from specpair.command_line.options.reading import flag_reader
from specpair.command_line.parser import Switch, flag
from specpair.options.option import Option, options_of


def add_options(group: Any, cls: type, names: Collection[str] | None = None, **others: Mapping[str, Any]) -> None:
    """Add the flags of options of `cls` to an argument group: those in `names`, or of the group's title if it is None.

    Flags that are settings, too, give the text that was given: what makes the settings reads it.
    `others`: by name, what a flag says in another way than its option: keys of `About`, and `default`.
    """
    for name, option in options_of(cls).items():
        if name in names if names is not None else option.about.group == group.title:
            add_option(group, option.saying(**others.get(name, {})))


def add_option(group: Any, option: Option) -> None:
    """Add the flag of an option to an argument group."""
    name, about = flag(option.setting), option.about
    shown = about.usually or shown_default(option.usual)
    words = f"{about.words}{f' (default: {shown})' if shown else ''}".replace("%", "%%")
    how: dict[str, Any] = {"dest": option.setting, "default": option.usual, "help": words}
    if option.kind is bool:
        action = group.add_argument(name, action=Switch, **how)
    elif about.item is not None:
        how |= {"help": f"{words}; may be given several times", "default": []}
        action = group.add_argument(name, metavar=about.placeholder, type=flag_reader(option), action="append", **how)
    else:
        if not option.lasts:
            how["type"] = flag_reader(option)
        spelled = [name, about.short] if about.short else [name]
        action = group.add_argument(*spelled, metavar=about.placeholder or _placeholder(option), **how)
    vars(action)["option"] = option
    if about.formerly:
        group.add_argument(flag(about.formerly), help=argparse.SUPPRESS, default=argparse.SUPPRESS)


def _placeholder(option: Option) -> str:
    if option.choices:
        return "{" + ",".join(option.choices) + "}"
    if option.about.auto:
        return "auto|N"
    return "N,N,…" if option.kind is tuple else "N"


def option_of(action: argparse.Action) -> Option | None:
    """The option whose flag this is; None: it is another flag."""
    found: Option | None = getattr(action, "option", None)
    return found


def shown_default(value: Any) -> str:
    """A default as one would write it behind the flag; empty: there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", (), {}):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
