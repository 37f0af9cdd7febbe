"""What a shared service keeps in its state folder: the certificates, the keys, the invitations, when keys were used.

Also the addresses at which other machines reach it. The commands of the service (`invite`, `key`, `cert`, `unshare`)
work on the same files while it runs.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

from specpair.command_line.setting_values import SettingsError
from specpair.http_service.keys.key_file import seen_folder
from specpair.http_service.sharing import certificate_maker
from specpair.http_service.sharing.invitations import Invitations
from specpair.http_service.sharing.link import JoinLink, fingerprint

_USUAL_HOST = "127.0.0.1"
_HEAD = "-----BEGIN CERTIFICATE-----"


def state_folder() -> Path:
    """The folder in which our programs keep what must not be lost. Raises SettingsError for a user without a home."""
    named = os.environ.get("XDG_STATE_HOME") or (os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    try:
        usual = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
        return Path(named or Path.home() / usual) / "specpair"
    except RuntimeError:
        raise SettingsError("share: this user has no home folder for the certificate: set XDG_STATE_HOME") from None


class Share:
    """The files of one shared service. Methods raise OSError."""

    def __init__(self, service: str, folder: Path | None = None) -> None:
        """`service`: verifier, drafter or router. `folder`: replaces its folder in `state_folder`."""
        self.service = service
        self.folder = folder or state_folder() / service
        self.anchor, self.certificate = self.folder / "anchor.pem", self.folder / "certificate.pem"
        self.keys = self.folder / "keys.toml"
        self.invitations = Invitations(self.folder / "invitations.json")
        self._off, self._port = self.folder / "unshared", self.folder / "port"

    @property
    def prepared(self) -> bool:
        """Whether the service has been shared before."""
        return self.anchor.exists() and self.keys.exists()

    def prepare(self) -> None:
        """Make what is missing, and share again after `unshare`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not self.anchor.exists():
            certificate_maker.make_anchor(self.anchor, self.certificate)
        self.keys.touch(0o600)
        seen_folder(self.keys).mkdir(mode=0o700, exist_ok=True)
        self._off.unlink(missing_ok=True)

    def renew(self) -> None:
        """Make a new certificate, which the anchor's key signs. A running service takes it within seconds."""
        certificate_maker.renew(self.anchor, self.certificate)

    def unshare(self) -> None:
        """Have a running service refuse other machines, and end all invitations."""
        self._off.touch(0o600)
        self.invitations.withdraw()

    def options(self, host: str) -> dict[str, Any]:
        """The `ServiceOptions` of the shared service. `host`: as it was set."""
        return {
            "host": "" if host == _USUAL_HOST else host,  # all addresses of this machine
            "keys_file": self.keys,
            "ssl_certfile": self.certificate,
        }

    @property
    def off(self) -> bool:
        return self._off.exists()

    @property
    def port(self) -> int:
        """Where the service listens, or listened last."""
        return int(self._port.read_text(encoding="ascii"))

    @port.setter
    def port(self, port: int) -> None:
        self._port.write_text(str(port), encoding="ascii")

    @property
    def anchor_pem(self) -> str:
        """The certificate that guests pin, without its key."""
        content = self.anchor.read_text(encoding="ascii")
        return content[content.index(_HEAD) :]

    def addresses(self) -> list[str]:
        """Where guests may reach this machine, the likeliest first."""
        return own_addresses() or ["127.0.0.1"]

    def links(self, token: bytes) -> list[JoinLink]:
        """The link with a token, by each address."""
        pin = fingerprint(self.anchor_pem)
        return [JoinLink(each, self.port, pin, token) for each in self.addresses()]


def share_of(options: Any, insecure: bool, service: str, key: Callable[[str], str]) -> Share | None:
    """What a service with these `ServiceOptions` shares, prepared; None without the option `share`.

    `key`: the name by which a setting was given. Raises SettingsError.
    """
    if not options.share:
        return None
    own = "a shared service makes its own certificate, which guests pin"
    for name, given, why in (
        ("insecure", insecure, "a shared service always wants keys"),
        ("ssl_certfile", options.ssl_certfile, own),
        ("ssl_keyfile", options.ssl_keyfile, own),
    ):
        if given:
            raise SettingsError(f"{key('share')}: {why}: leave {key(name)} out, or {key('share')}")
    share = Share(service)
    try:
        share.prepare()
    except OSError as error:
        raise SettingsError(f"{key('share')}: {error.filename}: {error.strerror}") from None
    return share


_NO_WAY_IN = re.compile(r"(lo|docker|br-|virbr|veth|cni|flannel|cali|vmnet|vboxnet|podman|lxc|bridge)\d*")
_OVERLAY = ip_network("100.64.0.0/10")  # Tailscale's, for example: it works from anywhere, but may be slower


def own_addresses() -> list[str]:
    """The addresses of this machine's interfaces, the likeliest first; none for a machine without a network.

    Addresses of bridges and containers are left out: other machines do not reach them.
    """
    import ifaddr  # only a service that shares needs it

    found = {
        address: None
        for adapter in ifaddr.get_adapters()
        if not _NO_WAY_IN.match(adapter.nice_name) and not _NO_WAY_IN.match(adapter.name)
        for address in _addresses(adapter.ips)
    }
    return [str(each) for each in sorted(found, key=_rank)]


def _addresses(ips: Iterable[Any]) -> Iterator[IPv4Address | IPv6Address]:
    for each in ips:
        text = each.ip if isinstance(each.ip, str) else each.ip[0]
        address = ip_address(text)
        if not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified):
            yield address


def _rank(address: IPv4Address | IPv6Address) -> tuple[bool, bool, bool]:
    """Private networks first, IPv4 before IPv6: people can read it."""
    overlay = isinstance(address, IPv4Address) and address in _OVERLAY
    return address.version == 6, overlay, not address.is_private
