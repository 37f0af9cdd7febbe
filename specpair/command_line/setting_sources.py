"""The sources of settings besides flags: environment variables, and the file `specpair.toml`.

The file has a table for each program. Its values are passed on as text, so that a value means the same there as in a
variable of the environment.
"""

import os
import re
import stat
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specpair.command_line.setting_values import SettingsError, advice, home

# For a service called "verifier", Kubernetes gives every container of its namespace VERIFIER_SERVICE_HOST,
# VERIFIER_PORT=tcp://10.0.0.1:8000, VERIFIER_PORT_8000_TCP_ADDR and more; for one called "verifier-big",
# VERIFIER_BIG_SERVICE_HOST and so on. Docker's links do the same.
_SERVICE = re.compile(r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)
FILE = "specpair.toml"
VARIABLE = "SPECPAIR_CONFIG"
PROGRAMS = {"verifier": "verifier", "drafter": "drafter", "router": "specpair router"}  # by their table
TABLES = tuple(PROGRAMS)


def variables(prefix: str, known: Collection[str], environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that begin with `prefix`: the known ones, without the prefix, and the names of all others.

    `known`: names that the program reads, without the prefix, in capitals.

    Raises SettingsError for a name that is close to a known one, as it is most likely misspelt. Ignores the variables
    that Kubernetes and Docker set for a service of the program's name.
    """
    values, unknown = dict[str, str](), list[str]()
    for variable, value in environment.items():
        if not variable.startswith(prefix):
            continue
        name = variable[len(prefix) :]
        if _SERVICE.match(name) or (re.match(r"(.+_)?PORT$", name) and _ADDRESS.match(value)):
            continue
        if name in known:
            values[name] = value
            continue
        if meant := advice(name, known, shown=prefix.__add__, listed=False):
            raise SettingsError(f"{variable}: no such variable{meant}")
        unknown.append(variable)
    return values, unknown


class ConfigFile(NamedTuple):
    """A program's settings in a file."""

    path: Path  # absolute
    values: dict[str, str]  # by key; relative paths are relative to the file's folder
    public: bool  # whether everybody on this machine can read the file


def read(
    table: str,
    keys: Collection[str],
    paths: Collection[str],
    named: Path | None,
    environment: Mapping[str, str],
    path_lists: Collection[str] = (),
) -> ConfigFile | None:
    """The settings in `table`, one of `TABLES`.

    `keys`: those that it may hold.
    `paths`: those that name a file.
    `path_lists`: those that name several, with commas.

    Reads the file `named`, else the one that the variable SPECPAIR_CONFIG names, else `specpair.toml` in the working
    folder; returns None where there is none. Raises SettingsError if a file that was named is missing, and for a file
    that cannot be read or holds anything unknown.
    """
    variable = environment.get(VARIABLE)
    given = named or (home(variable) if variable else None)
    path = (given or Path(FILE)).absolute()
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, tomllib.loads(file.read().decode("utf-8-sig"))
    except FileNotFoundError:
        if given is None:
            return None
        raise SettingsError(f"{'--config' if named else VARIABLE}: no such file: {path}") from None
    except OSError as error:
        raise SettingsError(f"{path}: the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: the file is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: the file is not valid TOML: {error}") from None
    for name, value in content.items():
        _check_table(path, name, value)
    values = {key: _text(path, table, key, value, keys) for key, value in content.get(table, {}).items()}
    for key in paths:
        if values.get(key):
            values[key] = str(path.parent / os.path.expanduser(values[key]))
    for key in path_lists:
        if values.get(key):
            values[key] = ",".join(str(path.parent / os.path.expanduser(each)) for each in values[key].split(","))
    return ConfigFile(path, values, public=os.name != "nt" and bool(mode & stat.S_IROTH))


def _check_table(path: Path, name: str, value: Any) -> None:
    if name in TABLES and isinstance(value, dict):
        return
    *others, last = map(_bracketed, TABLES)
    if name in TABLES or not isinstance(value, dict):
        raise SettingsError(f"{path}: {name}: a setting belongs in a table, {', '.join(others)} or {last}")
    raise SettingsError(f"{path} [{name}]: no such table{advice(name, TABLES, shown=_bracketed)}")


def _bracketed(table: str) -> str:
    return f"[{table}]"


def _text(path: Path, table: str, key: str, value: Any, keys: Collection[str]) -> str:
    """The value of a key, as a variable of the environment would have it."""
    where = f"{path} [{table}] {key}"
    if key not in keys:
        hint = advice(key, keys, listed=False) or f"; '{PROGRAMS[table]} --help' lists them"
        raise SettingsError(f"{where}: no such setting{hint}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        raise SettingsError(f'{where}: write several values as one text, with commas: "1,8,32"')
    if not isinstance(value, (str, int, float)):  # its value may be a secret, and is not shown
        raise SettingsError(f"{where}: must be text, a number, true or false")
    return str(value)
