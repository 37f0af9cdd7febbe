"""Nodes that tests script, a router in front of them, and a link that a test cuts."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from gateway.router.app import create_app
from gateway.router.messages import NodeSpec
from gateway.router.settings import RouterSettings
from tests.drafter_client.http.fake_transports import model_info
from tests.gateway.openai_api.conftest import served
from tests.waiting import until

Answer = tuple[int, dict[str, Any]]
Handler = Callable[["Got", BaseHTTPRequestHandler], Answer | None]  # None: it has replied itself


class Got(NamedTuple):
    """A request that a node has got."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def refused(status: int, code: str) -> Answer:
    return status, {"error": {"code": code, "type": "server_error", "message": f"{code} here"}}


def breaks(got: Got, request: BaseHTTPRequestHandler) -> None:
    """Close the connection without a reply, or in the middle of one."""
    request.connection.shutdown(socket.SHUT_RDWR)
    request.close_connection = True


class StubNode:
    """A verifier that knows the sessions that it has opened, and does what a test says."""

    def __init__(self, model: str = "toy", identity: str = "a-1", port: int = 0) -> None:
        self.model, self.identity = model, identity
        self.health: dict[str, Any] = {}  # what it tells besides
        self.status = "ready"
        self.sessions: set[str] = set()
        self.got: list[Got] = []  # but for looks
        self.handler: Handler | None = None
        self.going = threading.Event()  # cleared: it answers nothing, and its connections stay open
        self.going.set()
        self.connections: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._request_class())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the port and all connections at once, as a process does that is killed."""
        self._server.shutdown()
        self._server.server_close()
        for each in [*self.connections]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @property
    def asked(self) -> list[str]:
        """The requests by method and path."""
        return [f"{each.method} {each.path}" for each in self.got]

    def answer(self, got: Got) -> Answer:
        session = got.headers.get("x-session-id", "")
        if got.path in ("/prefill", "/generate"):
            self.sessions.add(session)
        elif got.path == "/verify/batch":
            return 200, {"results": [self._item(each) for each in got.json["items"]]}
        elif got.path == "/sessions":
            return 200, {"sessions": [{"session_id": each, "total_tokens": 3} for each in sorted(self.sessions)]}
        elif got.path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": self.model}]}
        elif got.path == "/usage":
            return 200, {"keys": [{"key": "laptop", "requests": 2, "generated_tokens": 10}]}
        elif session and session not in self.sessions:
            return refused(404, "unknown_session")
        elif got.method == "DELETE":
            self.sessions.discard(session)
        return 200, {"node": self.url, "path": got.path}

    def _item(self, item: Any) -> Any:
        if item["session_id"] not in self.sessions:
            return refused(404, "unknown_session")[1]
        return {"node": self.url, "draft": item["draft_tokens"]}

    def about(self, path: str) -> Answer | None:
        if path == "/health":
            ready = {"model": self.model, "identity": self.identity} if self.status == "ready" else {}
            return 200 if self.status == "ready" else 503, {"status": self.status, **ready, **self.health}
        if path == "/model":
            return 200, json.loads(model_info(name=self.model, identity=self.identity).body())
        return None

    def _request_class(self) -> type[BaseHTTPRequestHandler]:
        node = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # else head and body are two packets, and the second waits for an acknowledgement

            def setup(self) -> None:
                super().setup()
                node.connections.add(self.connection)

            def finish(self) -> None:
                node.connections.discard(self.connection)
                with suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with suppress(OSError):
                    super().handle()

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                node.going.wait(20)
                got = Got(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                answer = node.about(got.path)
                if answer is None:
                    node.got.append(got)
                    answer = node.handler(got, self) if node.handler is not None else node.answer(got)
                if answer is not None:
                    self.reply(*answer)

            do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

            def reply(self, status: int, body: Any, **headers: str) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None: ...

        return Request


class Router(NamedTuple):
    """A router in a thread, and the nodes behind it."""

    http: httpx.Client
    nodes: list[StubNode]
    app: Any

    def states(self) -> list[str]:
        """The states of the nodes, as it sees them."""
        return [each["status"] for each in self.http.get("/nodes").json()["nodes"]]

    def until_seen(self, *states: str) -> None:
        """Wait until the nodes have these states."""
        until(lambda: self.states() == [*states], f"not {states}")


@contextmanager
def routing(
    *nodes: StubNode, specs: list[NodeSpec] | None = None, wait: bool = True, **settings: Any
) -> Iterator[Router]:
    """A router in front of nodes, which it has looked at. `specs`: what is said of them; None: their URLs."""
    listed = [NodeSpec(each.url) for each in nodes] if specs is None else specs
    app = create_app(RouterSettings(**{"look_every": 0.02, **settings}), listed)
    key = settings.get("api_key")
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=20, headers=headers) as http:
        router = Router(http, [*nodes], app)
        if wait and listed:
            until(lambda: "unknown" not in router.states(), "the nodes are not looked at")
        yield router


@contextmanager
def fleet(count: int = 3, **settings: Any) -> Iterator[Router]:
    """A router in front of so many equal nodes."""
    with ExitStack() as stack:
        nodes = [StubNode() for _ in range(count)]
        for each in nodes:
            stack.callback(each.close)
        yield stack.enter_context(routing(*nodes, **settings))


class _Server(ThreadingTCPServer):
    allow_reuse_address = True


class Link:
    """Carries connections to the node at `to`, until it is cut."""

    def __init__(self, to: str, port: int = 0) -> None:
        """`port`: its own, such as that of a link that was cut; 0: any."""
        target = urlsplit(to).hostname, urlsplit(to).port
        self._open: list[socket.socket] = []
        link = self

        class Joined(BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(target) as node:
                    link._open += [self.request, node]
                    back = threading.Thread(target=_carry, args=(node, self.request), daemon=True)
                    back.start()
                    _carry(self.request, node)
                    back.join()

        self._server = _Server(("127.0.0.1", port), Joined)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break all connections; no new ones can be made."""
        self._server.shutdown()
        self._server.socket.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def link(to: str, port: int = 0) -> Iterator[Link]:
    made = Link(to, port)
    try:
        yield made
    finally:
        made.cut()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
