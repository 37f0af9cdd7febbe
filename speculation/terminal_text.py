"""What may go to a terminal of a text that somebody else wrote: a model, a verifier, a file, a client.

A terminal obeys control characters: they move the cursor, change the title, write to the clipboard. Others reorder a
line (bidirectional overrides). Both functions write such a character as Python does, `\\x1b` or `\\u202e`, and leave
all else as it is. Neither undoes rich's markup: hand their result to `rich.text.Text`.
"""

import unicodedata

_OBEYED = {"Cc", "Cs", "Zl", "Zp"}  # control characters, half characters, line and paragraph separators
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u206a\u206b\u206c\u206d\u206e\u206f")


def one_line(text: str) -> str:
    """`text` as part of one line, every unprintable character written out: for names, reasons, error messages."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _written_out(sign) for sign in text)


def several_lines(text: str) -> str:
    """`text` with its newlines and tabs, other control characters written out: for what a model wrote.

    Invisible characters that languages and emoji need, such as joiners, stay. Safe for a part of a text, too: no
    character depends on the one before.
    """
    if text.isprintable():
        return text
    return "".join(_written_out(sign) if _is_obeyed(sign) else sign for sign in text)


def _is_obeyed(sign: str) -> bool:
    return sign not in "\n\t" and (unicodedata.category(sign) in _OBEYED or sign in _REORDERING)


def _written_out(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
