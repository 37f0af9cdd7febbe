"""An option is a field of a dataclass with type, default, range and meaning. All else is derived from the field.

A request's field and its check (`request_fields`), the check in a program (`complaint`), a flag, a variable, a key of a
file, and the reference pages.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cache, cached_property
from operator import ge, gt, le, lt
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

AUTO = "auto"  # the word for None, where a setting has one
_ABOUT = "option"  # key of a field's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The metadata of an option's field, besides its type and default."""

    words: str  # what it means: one phrase, lower case, without a full stop
    name: str = ""  # of its setting, where that is not the field's
    formerly: str = ""  # what its setting was called before: still taken, as flag, variable and key
    short: str = ""  # a second spelling of its flag, which begins with one dash
    only: str = ""  # the end that has it as a setting, by its table in the file; empty: each
    choices: Sequence[str] = ()  # all of its values, where it is a text with few of them
    ge: float | None = None  # bounds of a number
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    longest: int | None = None  # characters of a text, at most
    usually: str = ""  # what happens where it is not given, if the default does not say so
    group: str = ""  # under which a command's help lists it; empty: it is no flag
    placeholder: str = ""  # of its value in a command's help
    auto: bool = False  # whether its setting has the word auto for None, which is its default there
    json: Callable[[], Any] | None = None  # makes the annotation of its value in JSON, where that is not the field's
    of_json: Callable[[Any], Any] | None = None  # the value of one in JSON, where they differ
    to_json: Callable[[Any], Any] | None = None  # and the other way
    in_file: bool = False  # whether its flag names a file that has the value
    reads: Callable[[str], Any] | None = None  # reads its value from a text
    item: Callable[[str], Any] | None = None  # reads an item of a flag that may be given several times
    items: Callable[[Sequence[Any]], Any] | None = None  # the value of the items of such a flag
    wrong: Callable[[Any], str | None] | None = None  # what else is wrong with a value
    check: Callable[[str], object] | None = None  # raises ValueError for a text that is no value of its setting


def option(default: Any = MISSING, words: str = "", *, factory: Any = MISSING, hash: bool = True, **about: Any) -> Any:
    """The field of an option.

    `about`: fields of `About`.
    `factory`: makes the default, in place of `default`.
    """
    given: dict[str, Any] = {"default": default} if factory is MISSING else {"default_factory": factory}
    metadata = {_ABOUT: About(words=words, **about)}
    return field(**given, hash=None if hash else False, metadata=metadata)


def like(cls: Any, name: str, words: str = "", *, default: Any = MISSING, **about: Any) -> Any:
    """A setting's field with the default and the range of an option of `cls`.

    `words`: its own; empty: those of the other.
    `about`: what else differs.
    """
    other = options_of(cls)[name]
    about = {"name": "", "formerly": "", "short": "", "only": "", "words": words or other.about.words, **about}
    metadata = {_ABOUT: replace(other.about, **about)}
    return field(default=other.usual if default is MISSING else default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """An option: the name, type and metadata of its field."""

    name: str
    annotation: Any
    default: Any
    about: About

    def saying(self, *, default: Any = MISSING, **about: Any) -> "Option":
        """This option with another default, or with other values of `About`."""
        changed = replace(self, about=replace(self.about, **about))
        return changed if default is MISSING else replace(changed, default=default)

    @property
    def setting(self) -> str:
        """The name of the option's setting: its flag, variable and key."""
        return self.about.name or self.name

    @property
    def usual(self) -> Any:
        """The default of its setting."""
        return AUTO if self.about.auto else self.default

    @cached_property
    def choices(self) -> Sequence[str]:
        """All values by name; empty: the values are not listed."""
        return [each.value for each in self.kind] if self.names_a_choice else self.about.choices

    @cached_property
    def kinds(self) -> tuple[type, ...]:
        """The types of its values."""
        union = get_origin(self.annotation) in (Union, types.UnionType)
        found = get_args(self.annotation) if union else (self.annotation,)
        return tuple(get_origin(each) or each for each in found)

    @cached_property
    def optional(self) -> bool:
        """Whether None (not given) is a value of the option."""
        return types.NoneType in self.kinds

    @property
    def kind(self) -> Any:
        """The type of its values, except None and auto."""
        return next((each for each in self.kinds if each not in (types.NoneType, Literal)), str)

    @property
    def lasts(self) -> bool:
        """Whether it can also be a variable and a key of a file: not if its flag names a file or may be repeated."""
        return self.about.item is None and not self.about.in_file

    @cached_property
    def types(self) -> tuple[type, ...] | None:
        """The types of a value that is a number, a switch or a text; None: the value is something else."""
        kinds = [each for each in self.kinds if each is not types.NoneType]
        if len(kinds) > 1 or kinds[0] not in (int, float, bool, str):
            return None
        return (float, int) if kinds[0] is float else (kinds[0],)

    @property
    def names_a_choice(self) -> bool:
        """Whether a value may be given by its name."""
        return issubclass(self.kind, Enum)

    @property
    def bounds(self) -> str:
        """Its range in words; empty without a range."""
        about = self.about
        low = about.ge if about.gt is None else about.gt
        high = about.le if about.lt is None else about.lt
        if low is not None and high is not None:
            begin, end = "[" if about.gt is None else "(", "]" if about.lt is None else ")"
            return f"in {begin}{_number(low)}, {_number(high)}{end}"
        if low is not None:
            return f"{'at least' if about.gt is None else 'above'} {_number(low)}"
        return "" if high is None else f"{'at most' if about.lt is None else 'below'} {_number(high)}"

    def complaint(self, value: Any) -> str | None:
        """The error for a value, beginning with the option's name; None: the value is valid."""
        if value is None and self.optional:
            return None
        if self.choices:
            if value not in self.choices:
                return f"{self.name} must be one of {', '.join(self.choices)}, got {value!r}"
        elif self.types is not None:
            if type(value) not in self.types:  # isinstance would take True for a number
                named = [each.__name__ for each in self.types] + (["None"] if self.optional else [])
                return f"{self.name} must be of type {' or '.join(named)}, got {value!r}"
            if not self.within(value):
                or_none = "None or " if self.optional and not self.bounds.startswith("in ") else ""
                return f"{self.name} must be {or_none}{self.bounds}, got {value}"
            if self.about.longest is not None and len(value) > self.about.longest:
                return f"{self.name} must have at most {self.about.longest} characters, got {len(value)}"
        return self.about.wrong(value) if self.about.wrong is not None else None

    def within(self, value: float) -> bool:
        about = self.about
        bounds = ((ge, about.ge), (gt, about.gt), (le, about.le), (lt, about.lt))
        return all(bound is None or holds(value, bound) for holds, bound in bounds)

    def to_json(self, value: Any) -> Any:
        if self.about.to_json is not None:
            return self.about.to_json(value)
        return value.value if isinstance(value, Enum) else value

    def of_json(self, value: Any) -> Any:
        return value if self.about.of_json is None else self.about.of_json(value)


def options_of(cls: Any) -> Mapping[str, Option]:
    """The options of a dataclass by name, those that may be given by position first."""
    return _options_of(cls)


@cache
def _options_of(cls: Any) -> Mapping[str, Option]:
    hints = get_type_hints(cls)
    found = [each for each in fields(cls) if _ABOUT in each.metadata]
    found.sort(key=lambda each: each.kw_only is True)
    default = {each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in found}
    return {each.name: Option(each.name, hints[each.name], default[each.name], each.metadata[_ABOUT]) for each in found}


def settings_of(cls: Any, end: str) -> dict[str, Option]:
    """The options of a dataclass that are settings of the program with this table in the file, by setting."""
    found = {each.setting: each for each in options_of(cls).values() if each.about.group and each.lasts}
    return {name: each for name, each in found.items() if each.about.only in ("", end)}


def complaint(given: Any) -> str | None:
    """The error for the first wrong option of a dataclass instance; None: all are valid."""
    complaints = (each.complaint(getattr(given, name)) for name, each in options_of(type(given)).items())
    return next((each for each in complaints if each is not None), None)


def different(given: Any) -> dict[str, Any]:
    """The options of a dataclass instance that differ from their defaults, as JSON has them."""
    return {
        name: each.to_json(value)
        for name, each in options_of(type(given)).items()
        if (value := getattr(given, name)) != each.default
    }


def described(cls: type) -> str:
    """The docstring of a class with a line for each of its options behind it."""
    lines = [(cls.__doc__ or "").rstrip(), ""]
    for name, each in options_of(cls).items():
        range_ = f", {each.bounds}" if each.bounds else ""
        usual = f"default: {each.about.usually or each.default!r}"
        lines.append(f"    `{name}`: {each.about.words} ({usual}{range_})")
    return "\n".join([*lines, "    "])


def _number(value: float) -> str:
    return "2**53" if value == 2**53 else f"{value:g}"
