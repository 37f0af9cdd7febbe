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
