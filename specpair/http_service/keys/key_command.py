"""The command `key` of both ends: makes keys, lists their names and limits, revokes them."""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from specpair.command_line.parser import OneOf, Parser, Switch
from specpair.command_line.setting_values import SettingsError, home
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import (
    BadKeyEntry,
    KeyFileError,
    KeyLimits,
    StoredKey,
    check_name,
    digest_of,
    entry_of,
    key_of,
    new_key,
    seen_folder,
)
from specpair.http_service.sharing.share import Share

ACTIONS = ("new", "list", "revoke")


def parser(program: str) -> Parser:
    key = " ".join([*program.split()[1:], "key"])
    made = Parser(
        f"{program} key",
        usage=f"new NAME [FLAGS]\n{key} list [FLAGS]\n{key} revoke NAME [FLAGS]",
        description="Make an API key, list the keys, or revoke one. A new key is printed once, and the file holds its "
        "hash. A running service reads the file again when it has changed.",
        examples=(
            f"{program} key new laptop --requests 8 --tokens-per-second 200 --keys-file keys.toml",
            f"{program} key revoke laptop",
        ),
    )
    made.add_argument("--config", metavar="FILE", type=home, help="file with settings that may name the file of keys")
    made.add_argument("action", choices=OneOf(ACTIONS), help="what to do")
    made.add_argument("name", nargs="?", metavar="NAME", help="the name of a key: letters, digits, '.', '_' and '-'")
    made.add_argument("--keys-file", metavar="FILE", type=home, help="file of keys (default: the setting keys_file)")
    limits = made.add_argument_group("limits of a new key")
    limits.add_argument("--sessions", metavar="N", type=int, help="sessions in use at once (default: no limit)")
    limits.add_argument("--requests", metavar="N", type=int, help="requests in flight at once (default: no limit)")
    limits.add_argument(
        "--tokens-per-second",
        metavar="X",
        type=float,
        help="generated and rejected tokens a second, on average (default: no limit)",
    )
    limits.add_argument("--admin", action=Switch, default=None, help="may see the usage of all keys")
    return made


def run(program: str, arguments: Sequence[str], keys_file: Callable[[Path | None], Path | None]) -> int:
    """Run the command. Returns the exit status: 1 if the file cannot be read or changed. Exits with 2 for bad flags.

    `keys_file(config)`: the setting; `config`: a file with settings. May raise SettingsError.
    """
    parsed = parser(program)
    options = parsed.parse(arguments)
    given = {name: getattr(options, name) for name in ("sessions", "requests", "tokens_per_second", "admin")}
    given = {name: value for name, value in given.items() if value is not None}
    if options.action == "list":
        if options.name is not None:
            parsed.error("list takes no name: it shows all keys")
    elif options.name is None:
        parsed.error(f"{options.action} wants the name of a key")
    if given and options.action != "new":
        parsed.error(
            f"--{next(iter(given)).replace('_', '-')}: only a new key gets limits: change those of others in the file"
        )
    name: str = options.name or ""
    try:
        path = options.keys_file or keys_file(options.config)
        if path is None and (share := Share(program.split()[-1])).prepared:
            path = share.keys
        if path is None:
            parsed.error(
                f"no file of keys: name it with --keys-file, {program.upper()}_KEYS_FILE, or keys_file in specpair.toml"
            )
        if options.action == "new":
            check_name(name)
            secret = new_key()
            entry = entry_of(StoredKey(name, digest_of(secret), KeyLimits()))
            key_file.add(path, key_of(name, entry | given))
            print(secret)
            print(f"{name} is in {path}; its key is shown only this once", file=sys.stderr)
        elif options.action == "revoke":
            key_file.remove(path, name)
            (seen_folder(path) / name).unlink(missing_ok=True)
            print(f"{name} is revoked in {path}", file=sys.stderr)
        else:
            print(_table(key_file.read(path), seen_folder(path)))
    except BadKeyEntry as error:
        parsed.error(str(error))
    except (KeyFileError, SettingsError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


def _table(keys: Sequence[StoredKey], seen: Path) -> str:
    """A line for each key, without its hash. `seen`: see `seen_folder`."""
    rows = [("name", "sessions", "requests", "tokens/s", "admin", "joined", "last seen")]
    for key in keys:
        limits = (key.limits.sessions, key.limits.requests, key.limits.tokens_per_second)
        shown = ["-" if limit is None else f"{limit:g}" for limit in limits]
        used = seen / key.name
        last = f"{datetime.fromtimestamp(used.stat().st_mtime):%Y-%m-%d %H:%M}" if used.exists() else "-"
        rows.append((key.name, shown[0], shown[1], shown[2], "yes" if key.admin else "-", key.joined[:10] or "-", last))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
