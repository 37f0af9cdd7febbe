"""The file of keys: TOML with a table for each key. What people wrote into it, comments too, stays as it is.

[laptop]
hash = "sha256:…"
sessions = 4
"""

import os
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from specpair.http_service.keys.stored_key import BadKeyEntry, StoredKey, entry_of, key_of

_HEADER = re.compile(r"\s*\[")
_LINE = re.compile(r"line (\d+)")


class KeyFileError(Exception):
    """The file of keys cannot be read or changed. The message names the file, and has nothing of its content."""


def read(path: Path) -> list[StoredKey]:
    """The keys in the file. Raises KeyFileError; FileNotFoundError becomes one, too."""
    return _keys(path, _content(path))


def add(path: Path, key: StoredKey) -> None:
    """Add a key at the end of the file, which is made if it is not there. Raises KeyFileError."""
    path = Path(os.path.realpath(path))
    with _Change(path) as change:
        before = _content(path) if path.exists() else ""
        keys = _keys(path, before)
        if any(each.name == key.name for each in keys):
            raise KeyFileError(f"{path} has a key named {key.name} already: choose another name, or revoke that one")
        lines = [f"{name} = {_value(value)}" for name, value in entry_of(key).items()]
        between = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        after = before + between + "\n".join([f"[{_table(key.name)}]", *lines, ""])
        _check(path, after, [*keys, key])
        change.write(after)


def remove(path: Path, name: str) -> None:
    """Remove a key from the file. Raises KeyFileError."""
    path = Path(os.path.realpath(path))
    with _Change(path) as change:
        before = _content(path)
        keys = _keys(path, before)
        if not any(key.name == name for key in keys):
            raise KeyFileError(f"{path} has no key named {name}: the command 'key list' shows what it has")
        after = _without(before, name)
        _check(path, after, [key for key in keys if key.name != name])
        change.write(after)


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


def _check(path: Path, content: str, wanted: Sequence[StoredKey]) -> None:
    """Raise KeyFileError unless `content` holds exactly the keys `wanted`: a file can be written in unusual ways."""
    with suppress(KeyFileError):
        if sorted(_keys(path, content), key=lambda key: key.name) == sorted(wanted, key=lambda key: key.name):
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
    """The table that a line begins; None if it is no header of a table."""
    try:
        (name,) = tomllib.loads(header)
    except (tomllib.TOMLDecodeError, ValueError):
        return None
    return name


def _table(name: str) -> str:
    """A name as the header of a table has it: a dot would make a table within a table."""
    return f'"{name}"' if "." in name else name


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


class _Change:
    """Replaces a file at once, so that readers see the old or the new one. One program at a time changes it.

    A new file can be read by its owner only; another one keeps its owner and its permissions.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._new = path, path.with_name(path.name + ".new")

    def __enter__(self) -> "_Change":
        try:
            self._file = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyFileError(
                f"{self._new} exists: another program is changing the keys. If none is, remove that file"
            ) from None
        except OSError as error:
            raise KeyFileError(f"{self._new} cannot be written: {error.strerror}") from None
        return self

    def write(self, content: str) -> None:
        """Replace the file. Raises KeyFileError."""
        try:
            with open(self._file, "w", encoding="utf-8", closefd=False) as file:
                file.write(content)
            os.fsync(self._file)
            with suppress(FileNotFoundError):
                before = os.stat(self._path)
                os.chmod(self._new, before.st_mode & 0o777)
                if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
                    os.chown(self._new, before.st_uid, before.st_gid)
            os.replace(self._new, self._path)
        except OSError as error:
            raise KeyFileError(f"{self._path} cannot be written: {error.strerror}") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._new.unlink(missing_ok=True)
