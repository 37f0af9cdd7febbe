"""An API key as it is stored: its name, its hash and its limits, never the key itself.

The hash is SHA-256, once and without a salt. A slow hash with a salt protects secrets that can be guessed, such as
passwords. The keys made here are 256 random bits: nobody can try them out, and no two are the same. So a fast hash is
as safe, and it is computed for every request. Who stores the hash of a key of their own has to make it as random.
"""

import hashlib
import math
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from specpair.command_line.suggestion import advice

PREFIX = "sp-"  # of the keys made here, so that people and secret scanners recognise them
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
DEFAULT = "default"  # the name of the one key that a setting gives
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_FIELDS = ("hash", "sessions", "requests", "tokens_per_second", "admin")
_MOST = 10**9  # the greatest limit


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may have at once. None: no limit of the key's own."""

    sessions: int | None = None  # in use at once
    requests: int | None = None  # in flight at once
    tokens_per_second: float | None = None  # on average; see `TokenBucket`


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key that a service accepts."""

    name: str
    digest: bytes  # SHA-256 of the key, 32 bytes
    limits: KeyLimits = KeyLimits()
    admin: bool = False  # whether it may see the usage of all keys
    owner: str = field(init=False)  # of the sessions that are opened with the key, which cannot be recovered from it

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", self.digest.hex())


class BadKeyEntry(Exception):
    """What is wrong with a stored key. The message has nothing of what the file says, which could be a key."""


def complaint(key: str) -> str | None:
    """Why a header cannot carry `key`; None: it can."""
    if not key:
        return "is empty, it should have at least 1 character"
    if not all("!" <= sign <= "~" for sign in key):
        return "a header can carry letters, digits and signs of ASCII only, and no spaces"
    return None


def new_key() -> str:
    """A new key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> bytes:
    """The hash of a key, 32 bytes."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def check_name(name: str) -> None:
    """Raise BadKeyEntry for a name that no stored key may have."""
    if name.startswith(PREFIX):
        raise BadKeyEntry(f"a name must not begin with {PREFIX!r}, as a key does")
    if not NAME.fullmatch(name):
        raise BadKeyEntry("a name has 1 to 64 letters, digits, '.', '_' and '-', and does not begin with '.' or '-'")
    if name == DEFAULT:
        raise BadKeyEntry(f"{DEFAULT!r} is the name of the key that a setting gives: choose another name")


def entry_of(key: StoredKey) -> dict[str, Any]:
    """The table of a key in the file."""
    limits = key.limits
    found: dict[str, Any] = {"hash": f"sha256:{key.digest.hex()}"}
    given = {"sessions": limits.sessions, "requests": limits.requests, "tokens_per_second": limits.tokens_per_second}
    found |= {name: value for name, value in given.items() if value is not None}
    return found | ({"admin": True} if key.admin else {})


def key_of(name: str, entry: Any) -> StoredKey:
    """The key of a table in the file. Raises BadKeyEntry."""
    check_name(name)
    if not isinstance(entry, dict):
        raise BadKeyEntry(f'{name} is no table: write [{name}], and below it hash = "sha256:…"')
    for each in entry:
        if each not in _FIELDS:
            raise BadKeyEntry(f"[{name}] has a field that no key has{advice(each, _FIELDS)}")
    given = entry.get("hash")
    found = _HASH.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise BadKeyEntry(
            f"[{name}] hash: must be sha256: and 64 hexadecimal digits, as the command 'key new' writes it"
        )
    admin = entry.get("admin", False)
    if not isinstance(admin, bool):
        raise BadKeyEntry(f"[{name}] admin: must be true or false")
    rate = entry.get("tokens_per_second")
    return StoredKey(
        name,
        bytes.fromhex(found[1]),
        KeyLimits(
            _whole(name, "sessions", entry.get("sessions")),
            _whole(name, "requests", entry.get("requests")),
            None if rate is None else _positive(name, "tokens_per_second", rate),
        ),
        admin,
    )


def _whole(name: str, field: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise BadKeyEntry(f"[{name}] {field}: must be a whole number, at least 1")
    return value


def _positive(name: str, field: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= _MOST or math.isnan(value):
        raise BadKeyEntry(f"[{name}] {field}: must be a number above 0")
    return float(value)
