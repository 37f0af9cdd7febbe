"""Options as fields of pydantic models: the same types, ranges and texts in requests, reports and OpenAPI."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Field

from specpair.options.option import Option, options_of


def request_fields(
    cls: type,
    names: Collection[str] | None = None,
    *,
    optional: bool = False,
    required: Collection[str] = (),
    **others: Mapping[str, Any],
) -> dict[str, tuple[Any, Any]]:
    """The fields for `create_model` of the options of `cls`, by name: annotation and default.

    `names`: of which options; None: of all.
    `optional`: each may be null, which is the default.
    `required`: those without a default.
    `others`: by name, what a field says in another way than its option: keys of `About`.
    """
    found = {name: each for name, each in options_of(cls).items() if names is None or name in names}
    made = {name: _field(each, optional, others.get(name, {})) for name, each in found.items()}
    return made | {name: (made[name][0], ...) for name in required}


def _field(option: Option, optional: bool, others: Mapping[str, Any]) -> tuple[Any, Any]:
    about = option.about
    said = {
        name: others.get(name, getattr(about, name))
        for name in ("words", "usually", "ge", "gt", "le", "lt", "longest", "json")
    }
    annotation = option.annotation if said["json"] is None else said["json"]()
    bounds = {name: said[name] for name in ("ge", "gt", "le", "lt") if said[name] is not None}
    if said["longest"] is not None:
        bounds["max_length"] = said["longest"]
    if option.names_a_choice:
        bounds["strict"] = False
    if optional:
        annotation = annotation | None
    default = option.default if option.names_a_choice else option.to_json(option.default)
    if optional:
        default = None
    described = sentence(said["words"]) + (f" Default: {said['usually']}." if said["usually"] else "")
    return Annotated[annotation, Field(description=described, **bounds)], default


def sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."
