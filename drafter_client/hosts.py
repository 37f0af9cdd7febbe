"""The hosts that this machine has joined: where each is, how to recognise it, the key that it gave, what drafts for it.

They are in one file of the user's config folder. Any process may use it at any time.
"""

import json
import os
import socket
import ssl
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import httpx

from drafter_client.errors import DrafterError, VerifierUnreachable
from drafter_client.http.trust import Trust
from specpair.command_line.setting_sources import PROGRAMS
from specpair.http_service.sharing import lan
from specpair.http_service.sharing.link import JoinLink, address_text, fingerprint, written
from specpair.shared_files import PRIVATE, alone, replacing

_SECONDS = 5.0  # for a connection to a host that joins
_LOOK_SECONDS = 1.5  # for a look whether a host answers at an address
_LAN_SECONDS = 3.0  # for a look for a host on the local network


class JoinError(DrafterError):
    """A host cannot be joined or found. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host that this machine has joined."""

    name: str
    service: str  # verifier, drafter or router
    addresses: tuple[str, ...]  # HOST:PORT, IPv6 in brackets; the one that answered last comes first
    key: str = field(repr=False)
    key_name: str  # at the host
    certificate: str = field(repr=False)  # the one that this machine trusts, in PEM
    joined: float  # Unix time
    draft_model: str = ""  # a path, or a name on the hub; empty: the one that ships
    mode: str = ""  # in which drafting gained most; target: no draft model helps; empty: not measured
    gain: float = 0.0  # measured, over the target alone; 0: not measured

    @property
    def url(self) -> str:
        return f"https://{self.addresses[0]}"

    @property
    def trust(self) -> Trust:
        return Trust(self.certificate)


class HostsFile:
    """The file of joined hosts. Methods raise JoinError for a file that cannot be read or written."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: replaces the usual file."""
        self.path = path or config_folder() / "hosts.toml"

    def all(self) -> list[Host]:
        """The hosts, the one joined last at the end."""
        try:
            content = tomllib.loads(self.path.read_text(encoding="utf-8"))
            hosts = [Host(name, **{**entry, "addresses": tuple(entry["addresses"])}) for name, entry in content.items()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JoinError(f"{self.path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, KeyError, AttributeError):
            raise JoinError(f"{self.path} is damaged: remove it, and join the hosts again") from None
        return sorted(hosts, key=lambda host: host.joined)

    def find(self, name: str) -> Host | None:
        return next((host for host in self.all() if host.name == name), None)

    def keep(self, host: Host) -> None:
        """Add a host, or replace the one of its name."""
        with self._changing() as hosts:
            hosts[host.name] = host

    def forget(self, name: str) -> None:
        with self._changing() as hosts:
            hosts.pop(name, None)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Host]]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone(self.path):
                hosts = {host.name: host for host in self.all()}
                yield hosts
                with replacing(self.path, PRIVATE) as file:
                    file.write("\n".join(map(_table, hosts.values())).encode())
        except OSError as error:
            raise JoinError(f"{self.path} cannot be written: {error.strerror}") from None


def _table(host: Host) -> str:
    entry: dict[str, Any] = asdict(host)
    header = f"[{json.dumps(entry.pop('name'))}]"  # JSON's texts, lists and numbers are TOML's
    return "\n".join([header, *(f"{key} = {json.dumps(value)}" for key, value in entry.items()), ""])


def config_folder() -> Path:
    """The folder of the user's settings for our programs. Raises JoinError for a user without a home."""
    named = os.environ.get("XDG_CONFIG_HOME") or (os.environ.get("APPDATA") if sys.platform == "win32" else None)
    try:
        return Path(named or Path.home() / ".config") / "specpair"
    except RuntimeError:
        raise JoinError("this user has no home folder for the joined hosts: set XDG_CONFIG_HOME") from None


def join(link: JoinLink, name: str, when: float) -> Host:
    """Join the host of a link: recognise it by its certificate, and exchange the token for a key.

    `name`: this machine's. `when`: Unix time. Raises JoinError.
    """
    base = f"https://{address_text(link.host, link.port)}"
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # only to read what is then compared
    certificate = _asked(unchecked, "GET", base, None).get("certificate", "")
    try:
        known = fingerprint(certificate)
    except ValueError:
        known = b""
    if known != link.fingerprint:
        raise JoinError(
            f"the machine at {link.host} shows another certificate than the link says, so nothing was sent to it: ask "
            "for a new link, and if that does not help, somebody is between the two machines"
        )
    told = _asked(Trust(certificate).context, "POST", base, {"token": written(link.token), "name": name})
    try:
        others = [address_text(each["host"], each["port"]) for each in told["addresses"]]
        first = address_text(link.host, link.port)  # it has just answered
        addresses = dict.fromkeys([first, *others])
        host = Host(
            name=told["host"],
            service=told["service"],
            addresses=(*addresses,),
            key=told["key"],
            key_name=told["name"],
            certificate=certificate,
            joined=when,
        )
    except (KeyError, TypeError):
        raise JoinError(
            f"the machine at {link.host} did not answer as a specpair service does: check its version"
        ) from None
    return host


def _asked(context: ssl.SSLContext, method: str, base: str, body: Mapping[str, str] | None) -> dict[str, Any]:
    """The reply of a host to a request to join. Raises JoinError."""
    try:
        with httpx.Client(verify=context, timeout=_SECONDS, trust_env=False) as client:
            reply = client.request(method, f"{base}/join", json=body)
        told = reply.json()
    except httpx.ConnectError as error:
        if isinstance(error.__cause__, Exception) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise JoinError(f"another machine answered at {base}: ask the host for a new link") from None
        raise JoinError(
            f"nothing answers at {base}: is the service running with --share, and both machines in one network?"
        ) from None
    except httpx.HTTPError as error:
        raise JoinError(f"{base} did not answer: {str(error) or type(error).__name__}") from None
    except ValueError:
        raise JoinError(f"what answers at {base} is no specpair service") from None
    if reply.status_code != 200 or not isinstance(told, dict):
        message = told.get("error", {}).get("message") if isinstance(told, dict) else None
        raise JoinError(message or f"{base} answered with status {reply.status_code}")
    return told


def answering(host: Host) -> Host:
    """The host, with the address first at which it answers now: a known one, or one that it announces on the local
    network. Raises VerifierUnreachable; if another machine has its address, and it has none: as it was."""
    pin, usurped = host.trust.fingerprint, False
    found = (each for seen in lan.look(_LAN_SECONDS) if seen.pin == pin for each in seen.addresses)
    try:
        for address in chain(host.addresses, found):
            try:
                _shake_hands(host, address)
            except (OSError, ValueError) as error:  # ssl's errors are among them
                usurped |= isinstance(error, ssl.SSLCertVerificationError)
                continue
            addresses = (*dict.fromkeys([address, *host.addresses]),)
            return host if addresses == host.addresses else replace(host, addresses=addresses[: lan.MOST])
        here = f"was not found on this network in {_LAN_SECONDS:g} s"
    except lan.LanError as error:
        here = f"this network cannot be searched ({error})"
    if usurped:
        return host  # a connection says whose certificate it is
    raise VerifierUnreachable(
        f"{host.name} answers at none of its addresses ({', '.join(host.addresses)}), and {here}: is it running with "
        "--share? If it moved, and multicast is blocked here (by a firewall, another subnet, macOS's permission Local "
        f"Network), join it by a new link, from '{PROGRAMS.get(host.service, host.service)} invite NAME' there"
    )


def _shake_hands(host: Host, address: str) -> None:
    """Raises OSError and ValueError unless the host answers at an address."""
    place = httpx.URL(f"https://{address}")
    with socket.create_connection((place.host, place.port or 443), _LOOK_SECONDS) as plain:
        plain.settimeout(_LOOK_SECONDS)
        host.trust.context.wrap_socket(plain).close()
