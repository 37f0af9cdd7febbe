"""How many of what, in words."""


def counted(count: int, one: str, several: str | None = None) -> str:
    """`1 token`, `2 tokens`. `several`: what more than one are called, where that is not `one` with an s."""
    return f"{count} {one}" if count == 1 else f"{count} {several or one + 's'}"
