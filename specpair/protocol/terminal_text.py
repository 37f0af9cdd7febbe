"""Makes untrusted text (of a model, a verifier, a file, a client) safe to print to a terminal.

A terminal obeys control characters: they move the cursor, change the title, write to the clipboard. Bidirectional
overrides reorder a line. Both functions escape such characters as Python does, `\\x1b` or `\\u202e`, and leave all
others unchanged. Neither escapes rich's markup: pass the result to `rich.text.Text`.
"""

import unicodedata

_OBEYED = {"Cc", "Cs", "Zl", "Zp"}  # control characters, surrogates, line and paragraph separators
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u206a\u206b\u206c\u206d\u206e\u206f")


def one_line(text: str) -> str:
    """`text` as part of one line, with every unprintable character escaped. For names, reasons and error messages."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def several_lines(text: str) -> str:
    """`text` with control characters escaped except newlines and tabs. For the output of a model.

    Invisible characters that languages and emoji need, such as joiners, stay. Each character is treated on its own, so
    a text may be passed in pieces.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(character) if _is_obeyed(character) else character for character in text)


def _is_obeyed(character: str) -> bool:
    return character not in "\n\t" and (unicodedata.category(character) in _OBEYED or character in _REORDERING)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def is_text(value: str) -> bool:
    """Whether UTF-8 can encode `value`: not half a character (a lone surrogate)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
