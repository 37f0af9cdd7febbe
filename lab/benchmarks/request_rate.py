"""How many verify requests a second one verifier can answer, whatever its target takes: what limits its program.

Method. A verifier process with the scripted backend, whose passes take next to no time, and so many sessions at once,
each over a connection of its own. This process sends the next request of a session, of four draft tokens, as soon as
the last one is answered, by one thread over bare sockets. Requests that come during a pass share the next one. Printed
are the requests a second over `--seconds`, the sessions in a pass, and the processor time that the verifier's process
takes for a request; beside them the same for a trivial FastAPI route that answers a fixed reply.

    python -m lab.benchmarks.request_rate [--clients 1 8 32]
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlsplit

from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from lab.benchmarks.harness.machine import used_by
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.round_trip import DRAFTS
from specpair.child_processes.serving import Server, serve, verifier

_WARM_UP = 1.0  # seconds
_SESSION_TOKENS = 50_000  # that a session may have: more than it gets
_END_OF_HEAD = b"\r\n\r\n"


class _Client:
    """One session's connection: its next request is sent once its last one is answered."""

    def __init__(self, address: tuple[str, int], session_id: str, position: int) -> None:
        self._session_id, self._position = session_id, position
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        body = json.dumps({"position": self._position, "draft_tokens": DRAFTS}, separators=(",", ":"))
        head = (
            "POST /verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"X-Session-Id: {self._session_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.socket.sendall((head + body).encode())

    def read(self) -> int:
        """Read the answer. Returns how many sessions shared its pass."""
        came = b""
        while _END_OF_HEAD not in came:
            came += self.socket.recv(65536)
        head, _, body = came.partition(_END_OF_HEAD)
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += self.socket.recv(65536)
        answer = json.loads(body)
        self._position = answer["position"] + len(answer["tokens"])
        return int(answer["timing"].get("sessions", 1))


def main() -> None:
    options = options_of(__doc__, {"clients": [1, 8, 32], "seconds": 5.0})
    report = Report("request_rate", options)
    for number in options.clients:
        with _sessions(number) as (server, start):
            report.line(f"{number:3} sessions   {_measured(server, start, number, options.seconds)}")
    with serve("lab.benchmarks.round_trip:trivial") as server:
        told = _measured(server, lambda: ("trivial", 1234), max(options.clients), options.seconds)
        report.line(f"trivial route  {told}")
    report.save()


@contextmanager
def _sessions(number: int) -> Iterator[tuple[Server, Callable[[], tuple[str, int]]]]:
    """A verifier, and a function that opens a session: its id, and its next position."""
    sessions = 2 * number + 16  # the verifier keeps some for other clients
    with (
        verifier(backend="scripted", context=number * _SESSION_TOKENS, slots=number, max_sessions=sessions) as server,
        closing(VerifierClient(server.url)) as client,
    ):
        client.wait_until_ready()

        def start() -> tuple[str, int]:
            opened = client.prefill(TextSession([1, 2, 3]), {"seed": 1, "temperature": 0.0})
            return opened.session_id, len(opened.prompt_ids) + len(opened.tokens)

        yield server, start


def _measured(server: Server, start: Callable[[], tuple[str, int]], number: int, seconds: float) -> str:
    url = urlsplit(server.url)
    assert url.hostname is not None and url.port is not None
    answered = shared = 0
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for _ in range(number):
            client = _Client((url.hostname, url.port), *start())
            stack.enter_context(client.socket)
            waiting.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        begins = time.perf_counter() + _WARM_UP
        used: float | None = None
        while (now := time.perf_counter()) < begins + seconds:
            if used is None and now >= begins:
                used, answered, shared = used_by(server.process.pid), 0, 0
            for key, _ in waiting.select():
                shared += key.data.read()
                answered += 1
                key.data.send()
        assert used is not None
        processor_ms = 1e3 * (used_by(server.process.pid) - used) / answered
    rate, in_pass = answered / seconds, shared / answered
    return f"{rate:6.0f} requests/s   {in_pass:4.1f} sessions in a pass   {processor_ms:.2f} ms of a core a request"


if __name__ == "__main__":
    main()
