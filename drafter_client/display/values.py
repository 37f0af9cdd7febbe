"""Values of metrics as text; a dash where a value is not known."""


def share(value: float | None) -> str:
    """A share, 0 to 1, in percent."""
    return "-" if value is None else f"{value:.1%}"


def unit(value: float | None, name: str = "") -> str:
    """A value with two decimals and the name of its unit, if it has one."""
    return "-" if value is None else f"{value:.2f} {name}".rstrip()


def size(count: int) -> str:
    """A number of bytes, in KiB."""
    return f"{count / 1024:.1f} KiB"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds with two decimals."""
    return unit(None if seconds is None else 1e3 * seconds, "ms")


def ttft(seconds: float, tokens: int) -> str:
    """TTFT of a text with `tokens` tokens; a dash for one that never began."""
    return f"{1e3 * seconds:.0f} ms" if tokens else "-"
