"""Announces shared services on the local network, and finds them there. Only this module needs `zeroconf`.

Anybody in a network may announce anything. So what is found is a hint: a host is known by its certificate alone.
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from queue import Empty, Queue
from typing import TYPE_CHECKING, NamedTuple

from specpair.command_line.setting_sources import PROGRAMS
from specpair.extras import installing
from specpair.http_service.sharing.link import address_text, fingerprint, written

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

    from specpair.http_service.sharing.share import Share
TYPE = "_specpair._tcp.local."
LOOK_EVERY = 2.0  # seconds between two looks whether the machine's addresses changed, or sharing ended
_ANSWER = 1.0  # seconds in which a service has to say where it is
_STOP = 5.0  # seconds for the end of an announcement
MOST = 8  # addresses of a service that are used
_log = logging.getLogger("specpair.service")


class LanError(Exception):
    """The local network cannot be used, or `zeroconf` is not installed. The message says why."""


class Seen(NamedTuple):
    """What an announcement says."""

    name: str  # the machine's
    service: str  # verifier, drafter or router
    pin: str  # the fingerprint of the certificate that guests pin, as in a link
    addresses: tuple[str, ...]  # HOST:PORT


def look(seconds: float, interfaces: Sequence[str] = ()) -> Iterator[Seen]:
    """The announced services, each as soon as it is seen, and again when it changes. Raises LanError.

    `interfaces`: addresses of those to use; none: all.
    """
    ends = time.monotonic() + seconds
    with _network(interfaces) as network:
        from zeroconf import ServiceBrowser

        names: Queue[str] = Queue()
        with suppress(Empty), ServiceBrowser(network, TYPE, handlers=[lambda name, **_: names.put(name)]):
            while (left := ends - time.monotonic()) > 0:
                name = names.get(timeout=left)
                info = network.get_service_info(TYPE, name, timeout=int(1000 * min(left, _ANSWER)))
                if info and info.port and (service := info.decoded_properties.get("service") or "") in PROGRAMS:
                    addresses = (address_text(each, info.port) for each in info.parsed_addresses()[:MOST])
                    yield Seen(info.get_name(), service, info.decoded_properties.get("pin") or "", (*addresses,))


def record(share: "Share", host: str, addresses: Sequence[str]) -> "ServiceInfo":
    """What is announced: nothing that is secret, and nothing of the model. `host`: the machine's name."""
    from zeroconf import ServiceInfo

    return ServiceInfo(
        TYPE,
        f"{host.partition('.')[0][:48] or share.service}.{TYPE}",
        port=share.port,
        properties={"service": share.service, "pin": written(fingerprint(share.anchor_pem))},
        parsed_addresses=[*addresses],
    )


@contextmanager
def announcement(share: "Share", host: str, addresses: Sequence[str]) -> Iterator[None]:
    """Announce a service while the block runs. Raises LanError."""
    with _network([each for each in addresses if ":" not in each] or addresses) as network:
        network.register_service(record(share, host, addresses), allow_name_change=True)
        yield


@contextmanager
def announced(share: "Share | None", host: str, every: float = LOOK_EVERY) -> Iterator[None]:
    """While the block runs, announce a service at the machine's addresses, as long as it is shared."""
    ended = threading.Event()
    thread = threading.Thread(target=_announce, args=(share, host, every, ended), name="announcing", daemon=True)
    if share is not None and find_spec("zeroconf"):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join(_STOP)


def _announce(share: "Share", host: str, every: float, ended: threading.Event) -> None:
    before: list[str] = []
    with suppress(LanError), ExitStack() as current:
        while not ended.is_set():
            addresses = [] if share.off else share.addresses()
            if addresses != before:
                before = addresses
                try:
                    with suppress(LanError):
                        current.close()
                    if addresses:
                        current.enter_context(announcement(share, host, addresses))
                except LanError as error:
                    _log.warning("this service is not announced on the local network: %s", error)
            ended.wait(every)


@contextmanager
def _network(interfaces: Sequence[str]) -> Iterator["Zeroconf"]:
    if find_spec("zeroconf") is None:
        raise LanError(f"zeroconf is not installed: {installing('lan')}")
    from zeroconf import Error, InterfaceChoice, Zeroconf

    logging.getLogger("zeroconf").addFilter(_shortened)
    try:
        with Zeroconf([*interfaces] or InterfaceChoice.All) as network:
            yield network
    except (OSError, RuntimeError, Error) as error:
        raise LanError(str(error) or type(error).__name__) from None


def _shortened(record: logging.LogRecord) -> bool:
    """A line without the traceback that `zeroconf` logs, once for each interface that it cannot use."""
    record.msg, record.exc_info = f"on the local network: {record.msg}", None
    return True
