"""The commands of a shared service: `invite NAME`, `unshare`, `cert renew`."""

import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import NoReturn

from specpair.command_line.parser import OneOf, Parser, Switch
from specpair.command_line.setting_values import SettingsError
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import BadKeyEntry, KeyFileError, check_name
from specpair.http_service.sharing.invitations import SECONDS
from specpair.http_service.sharing.share import Share

COMMANDS = ("invite", "unshare", "cert")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parser(program: str, command: str) -> Parser:
    return {"invite": _invite_parser, "unshare": _unshare_parser, "cert": _cert_parser}[command](program)


def run(program: str, command: str, arguments: Sequence[str]) -> int:
    """Run a command of a program. Returns the exit status: 1 if the service was never shared, or a file cannot be
    changed. Exits with 2 for bad flags."""
    parsed = parser(program, command)
    options = parsed.parse(arguments)
    try:
        share = Share(program.split()[-1])
        if not share.prepared:
            raise SettingsError(f"nothing is shared here: start the service once with {program} --share")
        if command == "unshare":
            share.unshare()
            print("within two seconds, other machines are cut off; --share shares again, with the same keys")
        elif command == "cert":
            share.renew()
            print("a new certificate is in use within seconds; nothing is to be done on other machines")
        else:
            _invite(parsed.error, share, program, options)
    except OSError as error:
        print(f"{program}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except (SettingsError, KeyFileError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


def _invite(fail: Callable[[str], NoReturn], share: Share, program: str, options: "object") -> None:
    name, seconds, uses = options.name, options.seconds, options.uses  # type: ignore[attr-defined]
    try:
        check_name(name)
    except BadKeyEntry as error:
        fail(str(error))
    if any(key.name == name for key in key_file.read(share.keys)):
        raise SettingsError(f"{name} has joined already: choose another name, or first: {program} key revoke {name}")
    if share.off:
        raise SettingsError(f"the service is no longer shared: start it with {program} --share")
    link, *others = share.links(share.invitations.invite(name, seconds, uses))
    print(f"drafter join {link}")
    for other in others:
        print(f"also reached at {other.host}", file=sys.stderr)
    if options.qr:  # type: ignore[attr-defined]
        import segno

        segno.make(str(link), error="L").terminal(compact=True, border=1)


def _invite_parser(program: str) -> Parser:
    made = Parser(
        f"{program} invite",
        usage=f"{' '.join([*program.split()[1:], 'invite'])} NAME [FLAGS]",
        description="Print the command by which another machine joins this service. It works once, within an hour.",
        examples=(f"{program} invite laptop", f"{program} invite team --uses 12 --for 2d"),
    )
    made.add_argument("name", metavar="NAME", help="the name of the machine's key")
    made.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="TIME",
        default=SECONDS,
        help="how long the link works: 90s, 30m, 12h or 7d (default: 1h)",
    )
    made.add_argument("--uses", metavar="N", type=_uses, default=1, help="machines that may use it (default: 1)")
    made.add_argument("--qr", action=Switch, help="also draw it as a QR code")
    return made


def _unshare_parser(program: str) -> Parser:
    return Parser(
        f"{program} unshare",
        usage=" ".join([*program.split()[1:], "unshare"]),
        description="Cut other machines off from a running service, until it is started with --share again. "
        "All links end; keys stay.",
        examples=(f"{program} unshare",),
    )


def _cert_parser(program: str) -> Parser:
    made = Parser(
        f"{program} cert",
        usage=" ".join([*program.split()[1:], "cert renew"]),
        description="Renew the certificate of a shared service, also while it runs. Machines that joined trust the new "
        "one, too: the key of the first one signs it.",
        examples=(f"{program} cert renew",),
    )
    made.add_argument("action", choices=OneOf(("renew",)), help="what to do")
    return made


def _seconds(text: str) -> float:
    if (found := re.fullmatch(r"(\d{1,6})([smhd])", text)) is None or int(found[1]) == 0:
        raise ArgumentTypeError("write a number and a unit: 90s, 30m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def _uses(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1000):
        raise ArgumentTypeError("write a whole number from 1 to 1000")
    return int(text)
