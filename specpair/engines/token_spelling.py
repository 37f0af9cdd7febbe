"""How vocabularies spell the bytes of a token of text: byte-level BPE (GPT-2), and SentencePiece."""

import re

SPACE = "▁"  # how SentencePiece writes a space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _alphabet() -> dict[str, bytes]:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    bytes_of = {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
    return {char: bytes([byte]) for char, byte in bytes_of.items()}


BYTE_LEVEL = _alphabet()  # the byte of each character: a printable byte is itself, others are chr(256) and on


def byte_level(name: str, errors: str = "strict") -> bytes:
    """The bytes of a token of byte-level BPE. `errors`: as `str.encode` has it."""
    return b"".join(BYTE_LEVEL.get(char) or char.encode(errors=errors) for char in name)


def sentencepiece(name: str, errors: str = "strict") -> bytes:
    """The bytes of a token of SentencePiece, of which some are called `<0x0A>`. `errors`: as `str.encode` has it."""
    byte = _BYTE.fullmatch(name)
    return bytes.fromhex(byte[1]) if byte else name.replace(SPACE, " ").encode(errors=errors)
