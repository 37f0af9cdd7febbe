"""Read the body of a response field by field, and check each: what answers may be no verifier."""

from typing import Any, TypeVar

from drafter_client.errors import BadReply
from speculation.terminal_text import one_line

NUMBERS = ("seed", "temperature", "top_k", "top_p", "threshold")  # the settings that are numbers
FINISH_REASONS = ("stop", "length")
_MOST = 2**53  # the largest count: larger ones are not exact as floats
T = TypeVar("T")
_LONGEST_MS = 1e7  # milliseconds, about three hours; no timeout is that long


def broken_promise(where: str, wrong: str) -> BadReply:
    """The error for a response from the address `where` that no verifier sends; `wrong` says what is wrong with it."""
    return BadReply(f"{where}: {wrong}: is it a verifier?")


class Fields:
    """The fields of one JSON object. Each method returns the value of the field `name`, of the type and range that the
    method is for; if the value is another, it raises BadReply with the address and the fault.

    Types are compared, not tested with isinstance: True is no number here. Comparing is also the fastest check, and the
    drafter waits while a `/verify` response is read.
    """

    __slots__ = ("_body", "_prefix", "_where")

    def __init__(self, where: str, body: Any, name: str = "") -> None:
        """`where`: the address that sent the response. `name`: the field that holds this object; empty for the whole
        response."""
        if type(body) is not dict:
            raise broken_promise(where, f"{name or 'the response'} is not an object")
        self._where, self._body, self._prefix = where, body, f"{name}." if name else ""

    def wrong(self, name: str, what: str) -> BadReply:
        """The error for the field `name`; `what` is wrong with it, as in `is not a whole number`."""
        return broken_promise(self._where, f"{self._prefix}{name} {what}")

    def _get(self, name: str) -> Any:
        try:
            return self._body[name]
        except KeyError:
            raise self.wrong(name, "is missing") from None

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._body.get(name) is not None

    def part(self, name: str) -> "Fields":
        """A JSON object within this one."""
        return Fields(self._where, self._get(name), self._prefix + name)

    def count(self, name: str, least: int = 0, most: int = _MOST) -> int:
        """A whole number from `least` to `most`."""
        value: int = self._get(name)
        if type(value) is not int:
            raise self.wrong(name, "is not a whole number")
        if not least <= value <= most:
            raise self.wrong(name, f"is {value}, not {least} to {most}")
        return value

    def expect(self, name: str, due: int) -> None:
        """Raise BadReply unless the field is the whole number `due`."""
        if (value := self.count(name)) != due:
            raise self.wrong(name, f"is {value} where {due} is due")

    def milliseconds(self, name: str) -> float:
        """Milliseconds, from 0 to `_LONGEST_MS`."""
        return self._time(name, self._get(name))

    def milliseconds_if_any(self, name: str) -> float | None:
        """Milliseconds, or None where the field is null or missing."""
        value = self._body.get(name)
        return None if value is None else self._time(name, value)

    def all_milliseconds(self, name: str) -> list[float]:
        """A list of times in milliseconds."""
        return [self._time(f"{name}[{at}]", value) for at, value in enumerate(self._list(name, "times"))]

    def _time(self, name: str, value: Any) -> float:
        if (type(value) is float or type(value) is int) and 0 <= value <= _LONGEST_MS:  # which excludes NaN
            return float(value)
        raise self.wrong(name, "is not a time in milliseconds")

    def share_if_any(self, name: str) -> float | None:
        """A number from 0 to 1, or None where the field is null or missing."""
        value = self._body.get(name)
        if value is None or (type(value) in (int, float) and 0 <= value <= 1):
            return value
        raise self.wrong(name, "is not a number from 0 to 1")

    def share(self, name: str) -> float:
        """A number from 0 to 1."""
        value = self._get(name)
        if type(value) in (int, float) and 0 <= value <= 1:
            return float(value)
        raise self.wrong(name, "is not a number from 0 to 1")

    def one_of(self, name: str, values: tuple[T, ...]) -> T:
        """One of `values`."""
        value = self._get(name)
        for each in values:
            if value == each:
                return each
        raise self.wrong(name, f"is none of {', '.join(map(str, values))}")

    def parts_if_any(self, name: str) -> "list[Fields] | None":
        """A list of JSON objects, or None where the field is null or missing."""
        if self._body.get(name) is None:
            return None
        return [
            Fields(self._where, each, f"{self._prefix}{name}[{at}]")
            for at, each in enumerate(self._list(name, "objects"))
        ]

    def flag(self, name: str) -> bool:
        """True or false."""
        value: bool = self._get(name)
        if type(value) is not bool:
            raise self.wrong(name, "is neither true nor false")
        return value

    def text(self, name: str) -> str:
        """Text without lone surrogates, which JSON can hold and UTF-8 cannot."""
        value: str = self._get(name)
        try:
            value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise self.wrong(name, "is not text") from None
        return value

    def line(self, name: str) -> str:
        """Text as one line without control characters, safe on a terminal."""
        return one_line(self.text(name))

    def texts(self, name: str) -> list[str]:
        """A list of printable texts."""
        values = self._list(name, "texts")
        if not all(type(value) is str and value.isprintable() for value in values):
            raise self.wrong(name, "is not a list of texts")
        return values

    def text_or_null(self, name: str) -> str | None:
        """Text, or None where the field is null."""
        return None if self._get(name) is None else self.text(name)

    def ids(self, name: str, below: int | None = None) -> list[int]:
        """A list of token ids, all of them below `below` if that is given."""
        value: list[int] = self._get(name)
        if type(value) is not list or list(map(type, value)).count(int) != len(value) or (value and min(value) < 0):
            raise self.wrong(name, "is not a list of token ids")
        if below is not None and value and max(value) >= below:
            raise self.wrong(name, f"holds {max(value)}, and the vocabulary has {below} ids")
        return value

    def id_or_null(self, name: str, below: int) -> int | None:
        """A token id below `below`, or None where the field is null."""
        return None if self._get(name) is None else self.count(name, most=below - 1)

    def count_or_null(self, name: str) -> int | None:
        """A whole number from 0 on, or None where the field is null."""
        return None if self._get(name) is None else self.count(name)

    def byte_strings(self, name: str) -> list[bytes]:
        """A list of byte strings, sent as text in Latin-1."""
        try:
            return [piece.encode("latin-1") for piece in self._list(name, "strings")]
        except (AttributeError, UnicodeEncodeError):
            raise self.wrong(name, "is not a list of strings of bytes") from None

    def _list(self, name: str, of: str) -> list[Any]:
        value: list[Any] = self._get(name)
        if type(value) is not list:
            raise self.wrong(name, f"is not a list of {of}")
        return value

    def settings(self, name: str) -> dict[str, Any]:
        """A JSON object whose values are numbers or names; names are made safe for a terminal."""
        given: dict[str, Any] = self._get(name)
        if type(given) is not dict:
            raise self.wrong(name, "is not an object")
        for key, value in given.items():
            if type(value) not in (int, float, str):
                raise self.wrong(f"{name}.{one_line(key)}", "is neither a number nor a name")
            if key in NUMBERS and type(value) is str:
                raise self.wrong(f"{name}.{key}", "is not a number")
        return {key: one_line(value) if type(value) is str else value for key, value in given.items()}

    def finish_reason(self) -> str | None:
        """The field `finish_reason`: why the text ended, or None if it has not."""
        value: str | None = self._get("finish_reason")
        if value is not None and value not in FINISH_REASONS:
            raise self.wrong("finish_reason", f"is neither null nor {' nor '.join(FINISH_REASONS)}")
        return value
