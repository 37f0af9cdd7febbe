"""Options as settings: the fields of a pydantic model, which reads a text as the option says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, create_model

from specpair.command_line.layers import LayeredSettings, Names
from specpair.command_line.options.reading import read
from specpair.options.option import AUTO, Option

S = TypeVar("S", bound=LayeredSettings)


def settings_model(base: type[S], options: Mapping[str, Option]) -> type[S]:
    """A model like `base` that has the options, which are by setting, as its fields."""
    fields: dict[str, Any] = {name: _field(each) for name, each in options.items()}
    return create_model(base.__name__, __base__=base, **fields)


def names_of(table: str, options: dict[str, Option]) -> Names:
    """The names of an end's settings.

    `table`: in the file.
    `options`: by setting.
    """
    former = {each.about.formerly: name for name, each in options.items() if each.about.formerly}
    by_any_name = options | {old: options[name] for old, name in former.items()}
    of_kind = {kind: {name for name, each in by_any_name.items() if each.kind is kind} for kind in (Path, SecretStr)}
    lists = {name for name, each in by_any_name.items() if each.annotation == tuple[Path, ...]}
    return Names(table, options, of_kind[Path], of_kind[SecretStr], former, lists)


def _field(option: Option) -> tuple[Any, Any]:
    about = option.about
    annotation = str if option.names_a_choice else option.annotation
    if about.auto:
        annotation = annotation | Literal[AUTO]

    def value_of(given: Any) -> Any:
        """The value that was given as a text, or as a number. Raises ValueError."""
        if isinstance(given, str) or (type(given) in (int, float) and option.kind in (int, float)):
            return read(option, str(given))
        return given

    words = about.words + (f" (default: {about.usually})" if about.usually else "")
    return Annotated[annotation, Field(description=words), BeforeValidator(value_of)], option.usual
