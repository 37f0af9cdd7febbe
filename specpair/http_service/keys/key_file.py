"""The file of keys: TOML with a table for each key. Comments and the layout stay as they are.

[laptop]
hash = "sha256:…"
sessions = 4

The hash is SHA-256, once and without a salt. A slow hash with a salt protects secrets that can be guessed, such as
passwords. The keys made here are 256 random bits: nobody can try them out, and no two are the same. So a fast hash is
as safe, and it is computed for every request. Who stores the hash of a key of their own has to make it as random.
"""

import hashlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import nextafter
from pathlib import Path
from typing import Any, TextIO

from specpair.command_line.setting_values import advice

PREFIX = "sp-"  # of the keys made here, so that people and secret scanners recognise them
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
DEFAULT = "default"  # the name of the one key that a setting gives
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_LIMITS: dict[str, tuple[float, str]] = {  # by field: the least value, and what one is
    **dict.fromkeys(("sessions", "requests"), (1, "whole number, at least 1")),
    "tokens_per_second": (nextafter(0.0, 1.0), "number above 0"),
}
_MOST = 10**9  # the greatest limit
_LONGEST_TIME = 40  # characters
_FIELDS = ("hash", *_LIMITS, "admin", "joined")
_HEADER = re.compile(r"\s*\[")
_LINE = re.compile(r"line (\d+)")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key. None: the key has no such limit."""

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
    joined: str = ""  # when its holder joined, as ISO 8601 writes it; empty: the key was made by `key new`
    owner: str = field(init=False)  # of the sessions that are opened with the key, which cannot be recovered from it

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", self.digest.hex())


class BadKeyEntry(Exception):
    """A stored key is wrong. The message quotes nothing of the file, since that could be a key."""


def complaint(key: str) -> str | None:
    """The reason why a header cannot carry `key`; None: a header can."""
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
    found = {"hash": f"sha256:{key.digest.hex()}", **asdict(key.limits), "admin": key.admin or None}
    found["joined"] = key.joined or None
    return {name: value for name, value in found.items() if value is not None}


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
    joined = entry.get("joined", "")
    if not isinstance(joined, str) or not joined.isprintable() or len(joined) > _LONGEST_TIME:
        raise BadKeyEntry(f"[{name}] joined: must be a time in quotes")
    limits = {each: _limit(name, each, entry[each]) for each in _LIMITS if each in entry}
    return StoredKey(name, bytes.fromhex(found[1]), KeyLimits(**limits), admin, joined)


def _limit(name: str, field: str, value: Any) -> Any:
    least, words = _LIMITS[field]
    if type(value) not in (int, type(least)) or not least <= value <= _MOST:  # false for NaN
        raise BadKeyEntry(f"[{name}] {field}: must be a {words}")
    return type(least)(value)


def seen_folder(keys_file: Path) -> Path:
    """The folder with a file for each key of `keys_file`, changed when the key was last used. It may be missing."""
    return keys_file.with_suffix(".seen")


class KeyFileError(Exception):
    """The file of keys cannot be read or changed. The message names the file, and has nothing of its content."""


def read(path: Path) -> list[StoredKey]:
    """The keys in the file. Raises KeyFileError, also for a missing file."""
    return _keys(path, _content(path))


def add(path: Path, key: StoredKey) -> None:
    """Add a key at the end of the file, which is created if missing. Raises KeyFileError."""
    path = Path(os.path.realpath(path))
    with _changing(path) as file:
        before = _content(path) if path.exists() else ""
        keys = _keys(path, before)
        if any(each.name == key.name for each in keys):
            raise KeyFileError(f"{path} has a key named {key.name} already: choose another name, or revoke that one")
        # In a header, a dot would make a table within a table. JSON's texts, numbers and truth values are TOML's.
        header = f'["{key.name}"]' if "." in key.name else f"[{key.name}]"
        lines = [f"{name} = {json.dumps(value)}" for name, value in entry_of(key).items()]
        between = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        _write(file, path, before + between + "\n".join([header, *lines, ""]), [*keys, key])


def remove(path: Path, name: str) -> None:
    """Remove a key from the file. Raises KeyFileError."""
    path = Path(os.path.realpath(path))
    with _changing(path) as file:
        before = _content(path)
        keys = _keys(path, before)
        if not any(key.name == name for key in keys):
            raise KeyFileError(f"{path} has no key named {name}: the command 'key list' shows what it has")
        _write(file, path, _without(before, name), [key for key in keys if key.name != name])


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
    except FileNotFoundError:
        raise KeyFileError(f"there is no file {path}: the command 'key new NAME' makes it") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{path} is not UTF-8 text") from None


def _keys(path: Path, content: str) -> list[StoredKey]:
    try:
        keys = [key_of(name, entry) for name, entry in tomllib.loads(content).items()]
    except tomllib.TOMLDecodeError as error:  # its message can quote the file
        where = _LINE.search(str(error))
        raise KeyFileError(f"{path} is not valid TOML{f', see line {where[1]}' if where else ''}") from None
    except BadKeyEntry as error:
        raise KeyFileError(f"{path}: {error}") from None
    owners: dict[bytes, str] = {}
    for key in keys:
        if key.digest in owners:
            raise KeyFileError(f"{path}: {owners[key.digest]} and {key.name} have the same hash: remove one of them")
        owners[key.digest] = key.name
    return keys


def _write(file: TextIO, path: Path, content: str, wanted: Sequence[StoredKey]) -> None:
    """Raises KeyFileError unless `content` holds exactly the keys `wanted`: a file can be written in unusual ways."""
    with suppress(KeyFileError):
        if {key.name: key for key in _keys(path, content)} == {key.name: key for key in wanted}:
            file.write(content)
            return
    raise KeyFileError(f"{path} is not written as tables of their own, so it was not changed: edit it by hand")


def _without(content: str, name: str) -> str:
    """`content` without the lines from the header of the table `name` to the last line before the next header.

    Comments and empty lines right above the next header stay, since they belong to that table.
    """
    lines = content.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if _HEADER.match(line)]
    begin = next((at for at in starts if _name_of(lines[at]) == name), len(lines))
    end = next((at for at in starts if at > begin), len(lines))
    while end > begin and not lines[end - 1].partition("#")[0].strip():
        end -= 1
    return "".join(lines[:begin] + lines[end:])


def _name_of(header: str) -> str | None:
    """The table that a line begins; None if the line is no header of a table."""
    try:
        (name,) = tomllib.loads(header)
    except (tomllib.TOMLDecodeError, ValueError):
        return None
    return name


@contextmanager
def _changing(path: Path) -> Iterator[TextIO]:
    """A context that yields a new file, which takes the place of `path` at its end. One program at a time changes it.

    A new file can be read by its owner only; another one keeps its owner and its permissions.
    """
    new = path.with_name(path.name + ".new")
    try:
        file = open(new, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    except FileExistsError:
        raise KeyFileError(
            f"{new} exists: another program is changing the keys. If none is, remove that file"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{new} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            before = os.stat(path)
            os.chmod(new, before.st_mode & 0o777)
            if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
                os.chown(new, before.st_uid, before.st_gid)
        os.replace(new, path)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
