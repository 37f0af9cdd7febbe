"""A name server for `check_dashboard`: Prometheus looks up services by DNS and does not read /etc/hosts."""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socketserver import BaseRequestHandler, UDPServer
from threading import Thread

_HEAD = struct.Struct("!6H")  # number, flags, and how many questions, answers, authorities and additions follow
_ANSWERED, _NO_SUCH_NAME = 0x8580, 0x8583
_ADDRESS = 1  # a record of type A
_SECONDS = 1  # that an answer may be kept


def reply(query: bytes, names: Mapping[str, str]) -> bytes:
    """The reply to a query with one question, as of RFC 1035. `names`: addresses by name; others do not exist."""
    number, *_ = _HEAD.unpack_from(query)
    labels, at = [], _HEAD.size
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    question = query[_HEAD.size : at + 5]
    kind, _ = struct.unpack("!2H", question[-4:])
    address = names.get(".".join(labels))
    if address is None or kind != _ADDRESS:
        return _HEAD.pack(number, _NO_SUCH_NAME if address is None else _ANSWERED, 1, 0, 0, 0) + question
    answer = struct.pack("!3HIH4s", 0xC000 + _HEAD.size, kind, 1, _SECONDS, 4, socket.inet_aton(address))
    return _HEAD.pack(number, _ANSWERED, 1, 1, 0, 0) + question + answer


@contextmanager
def name_server(names: Mapping[str, str], port: int = 53) -> Iterator[int]:
    """A server on 127.0.0.1 in a thread. Yields its port. `names`: may change meanwhile."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            query, asked = self.request
            asked.sendto(reply(query, names), self.client_address)

    with UDPServer(("127.0.0.1", port), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
