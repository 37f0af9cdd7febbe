"""The options of a grammar that constrains a text. Its processor masks all tokens that the grammar forbids.

`specpair.grammar` compiles grammars and makes the processors.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from specpair.options.option import option, options_of
from specpair.speculation.sampling.row_changes import LogitProcessor, MakeGrammar

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

LONGEST_SCHEMA = 256 * 1024  # characters: larger ones take seconds to compile
LONGEST_GRAMMAR, LONGEST_REGEX = 32 * 1024, 8 * 1024
MOST_CHOICES = 1000
# JSON in one line, with the spaces that Python writes, and models with it.
ONE_LINE: "JsonCompileOptions" = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarText(NamedTuple):
    """A grammar as it was given.

    `kind`: the name of its option.
    `text`: the value of the option; JSON for a schema and for choices.
    `after`: the token behind which it begins, as it is spelled; empty: it begins with the text.
    """

    kind: str
    text: str
    after: str = ""


class CheckedSchema(dict[str, Any]):
    """A checked JSON Schema with its text: serialising a large schema takes milliseconds each time.

    Raises ValueError for one that is wrong.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        self.text = _schema_text(self)


def _schema_text(schema: Any) -> str:
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"json_schema is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("json_schema is nested too deeply") from None
    if len(text) > LONGEST_SCHEMA:
        raise ValueError(f"json_schema has {len(text)} characters as JSON, at most {LONGEST_SCHEMA} are taken")
    return text


def _wrong_schema(schema: Any) -> str | None:
    if schema is None or isinstance(schema, CheckedSchema):
        return None
    if schema is False:
        return "json_schema: false allows no text: give an object of JSON, or true for any JSON"
    if not isinstance(schema, Mapping | bool):
        return f"json_schema must be an object of JSON, or true for any JSON, got {type(schema).__name__}"
    try:
        _schema_text(schema)
    except ValueError as error:
        return str(error)
    return None


def schema_check() -> Any:
    """For the annotation of a pydantic field: checks the schema once, and keeps its text."""
    from pydantic import WrapValidator  # only here: an engine can be measured without

    def check(value: Any, validate: Any) -> Any:
        if isinstance(value, CheckedSchema):
            return value
        given = validate(value)
        if not isinstance(given, dict):
            return given
        try:
            return CheckedSchema(given)
        except ValueError as error:
            raise ValueError(_without_name(error)) from None

    return WrapValidator(check)


def _schema_type() -> Any:
    return Annotated[dict[str, Any] | bool | None, schema_check()]


def _wrong_choices(choices: Any) -> str | None:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or any(type(each) is not str for each in choices):
        return f"choice must be texts, got {choices!r}"
    if not all(choices):
        return "choice holds an empty text: give each at least one character"
    if len(choices) > MOST_CHOICES:
        return f"choice has {len(choices)} texts, at most {MOST_CHOICES} are taken"
    if sum(map(len, choices)) > LONGEST_SCHEMA:
        return f"choice has more than {LONGEST_SCHEMA} characters"
    return None


def _choices_type() -> Any:
    from pydantic import AfterValidator

    def check(choices: list[str]) -> list[str]:
        if not choices:  # who sends a list wants the text to keep to it, while the default asks for nothing
            raise ValueError("is empty: give at least one text, or leave it out")
        if (wrong := _wrong_choices(choices)) is not None:
            raise ValueError(_without_name(wrong))
        return choices

    return Annotated[list[str], AfterValidator(check)]


def _without_name(complaint: object) -> str:
    return str(complaint).partition(" ")[2]  # pydantic names the field


def _schema_in(text: str) -> Any:
    """The schema in a text of JSON. Raises ValueError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _choice(text: str) -> str:
    """One of the choices as it was typed. Raises ValueError."""
    if not text:
        raise ValueError("is empty: give at least one character")
    return text


@dataclass(frozen=True, kw_only=True)
class GrammarOptions:
    """At most one grammar may be given."""

    json_schema: Mapping[str, Any] | bool | None = option(
        None,
        "write JSON, in one line, that is valid under this JSON Schema; schema true: any JSON",
        hash=False,
        group="grammar",
        placeholder="FILE",
        json=_schema_type,
        in_file=True,
        reads=_schema_in,
        wrong=_wrong_schema,
    )
    regex: str | None = option(
        None,
        "write a text that matches this regular expression from beginning to end, in Rust's syntax",
        longest=LONGEST_REGEX,
        group="grammar",
        placeholder="REGEX",
    )
    choice: Sequence[str] = option(
        (),
        "write one of these texts",
        group="grammar",
        placeholder="TEXT",
        json=_choices_type,
        hash=False,
        to_json=list,
        of_json=tuple,
        item=_choice,
        items=tuple,
        wrong=_wrong_choices,
    )
    grammar: str | None = option(
        None,
        "write a text that follows this grammar, in llguidance's Lark syntax or in llama.cpp's GBNF",
        longest=LONGEST_GRAMMAR,
        group="grammar",
        placeholder="FILE",
        in_file=True,
    )

    grammar_after: str = option(
        "",
        "apply the grammar only after this token, such as </think>; the text before is free",
        longest=128,
        group="grammar",
        placeholder="TOKEN",
    )

    @property
    def grammar_text(self) -> GrammarText | None:
        """The requested grammar; None: there is none."""
        for name in given_grammars(self):
            value = options_of(GrammarOptions)[name].to_json(getattr(self, name))
            text = value.text if isinstance(value, CheckedSchema) else value
            return GrammarText(name, text if isinstance(text, str) else json.dumps(text), self.grammar_after)
        return None

    def mask(self, grammars: MakeGrammar | None) -> LogitProcessor | None:
        """A new processor that masks what the grammar forbids; None: no grammar is asked for."""
        asked = self.grammar_text
        if asked is None:
            return None
        if grammars is None:
            raise ValueError(f"{asked.kind}: there are no grammars here, as the vocabulary is not known")
        return grammars(asked)


GRAMMARS = tuple(name for name in options_of(GrammarOptions) if name != "grammar_after")  # options that give one


def given_grammars(options: Any) -> list[str]:
    """The names of the options that give a grammar. `options`: anything that has them as attributes."""
    return [name for name in GRAMMARS if getattr(options, name) not in (None, "", (), [])]


def wrong_grammars(options: GrammarOptions) -> str | None:
    """The error for options that do not go together; None: they do."""
    given = given_grammars(options)
    if len(given) > 1:
        return f"{given[1]}: give either {given[0]} or {given[1]}"
    return None
