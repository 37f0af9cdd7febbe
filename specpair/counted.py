"""How many of what, in words."""


def counted(count: int, one: str, several: str | None = None) -> str:
    """`1 token`, `2 tokens`. `several`: what more than one are called, where that is not `one` with an s."""
    return f"{count} {one}" if count == 1 else f"{count} {several or one + 's'}"


def sized(count: float) -> str:
    """A number of bytes, as `4.68 GB` or `12.3 MB`."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
