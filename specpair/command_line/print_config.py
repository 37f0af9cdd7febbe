"""The table of `--print-config`: each setting with its value and where that came from. Secrets are not shown."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import SecretStr

from specpair.command_line.layers import LayeredSettings


def table(names: Iterable[str], settings: Sequence[LayeredSettings]) -> str:
    """A line for each of `names` that one of `settings` has, in the order of `names`."""
    rows = [("setting", "value", "from")]
    for name in names:
        for each in settings:
            if name in type(each).model_fields:
                rows.append((name, _shown(getattr(each, name)), each.origin(name)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in rows)


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "(set)" if len(value) else "(not set)"
    if value is None:
        return "(not set)"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text and text.isprintable() else repr(text)
