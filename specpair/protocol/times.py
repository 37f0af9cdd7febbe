"""Times on the wire are milliseconds, those inside are seconds: the way between them."""

from typing import overload

_DIGITS = 3  # of milliseconds, behind the point


@overload
def milliseconds(seconds: float) -> float: ...
@overload
def milliseconds(seconds: float | None) -> float | None: ...
def milliseconds(seconds: float | None) -> float | None:
    """A time as the wire has it; None: it is not known."""
    return None if seconds is None else round(1e3 * seconds, _DIGITS)


@overload
def seconds(milliseconds: float) -> float: ...
@overload
def seconds(milliseconds: float | None) -> float | None: ...
def seconds(milliseconds: float | None) -> float | None:
    """A time that the wire brought; None: it is not known."""
    return None if milliseconds is None else milliseconds / 1e3
