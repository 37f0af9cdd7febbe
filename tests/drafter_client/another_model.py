"""Addresses behind which a test has one verifier after the other, two at once, or a proxy; links that fail."""

import itertools
import threading
import time
from collections.abc import Iterator

import httpx

from backends.scripted import ByteVocabulary, ScriptedBackend
from drafter_client.errors import ConnectionLost


class Address(httpx.BaseTransport):
    """Sends requests to the verifier of this name, of those at `urls`. With a number as its name, all requests get that
    HTTP status, as a proxy answers whose verifier is gone."""

    def __init__(self, urls: dict[str, str], current: str | int) -> None:
        self._urls = {name: httpx.URL(url) for name, url in urls.items()}
        self.current = current
        self.asked: list[str] = []
        self._turns = 0
        self._inner = httpx.HTTPTransport()

    def turn(self, current: str | int) -> None:
        """Have another verifier answer, and break what the one before is sending."""
        self.current = current
        self._turns += 1

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if isinstance(self.current, int):
            return httpx.Response(self.current, content=b"<html>Bad Gateway</html>", headers={"Server": "a proxy"})
        there = self._urls[self._place(request)]
        request.url = request.url.copy_with(host=there.host, port=there.port)
        request.headers["Host"] = there.netloc.decode()
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Breaking(response.stream, self, self._turns)
        return response

    def _place(self, request: httpx.Request) -> str:
        """The name of the verifier that gets a request."""
        assert isinstance(self.current, str)
        return self.current

    def close(self) -> None:
        self._inner.close()

    @property
    def turns(self) -> int:
        return self._turns


class Router(Address):
    """Two replicas behind one address: a session's requests go to the replica of its id, others by turns."""

    def __init__(self, urls: dict[str, str], names: tuple[str, str]) -> None:
        super().__init__(urls, names[0])
        self.names = names
        self.served: set[str] = set()  # replicas that got sessions
        self._others = itertools.cycle(names)

    def swap(self) -> None:
        """Exchange the sessions of the two, and break what they are sending."""
        self.names = self.names[1], self.names[0]
        self.turn(self.current)

    def _place(self, request: httpx.Request) -> str:
        session_id = request.headers.get("X-Session-Id")
        if session_id is None:
            return next(self._others)
        name = self.names[ord(session_id[0]) % 2]
        self.served.add(name)
        return name


class _Breaking(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, address: Address, turns: int) -> None:
        self._inner, self._address, self._turns = inner, address, turns

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            if self._address.turns != self._turns:
                raise httpx.ReadError("the verifier was replaced")
            yield part

    def close(self) -> None:
        self._inner.close()


def swapped_vocabulary(backend: ScriptedBackend) -> ScriptedBackend:
    """The backend, with the bytes of two token ids exchanged."""
    vocabulary = ByteVocabulary()
    vocabulary.pieces[97], vocabulary.pieces[98] = vocabulary.pieces[98], vocabulary.pieces[97]
    backend.vocabulary = vocabulary
    return backend


class Links:
    """The links to verifiers: those in `out` fail, those in `slow` take so many seconds more."""

    def __init__(self) -> None:
        self.out: set[str] = set()
        self.slow: dict[str, float] = {}
        self.failed_uses = threading.Semaphore(0)

    def use(self, url: str, seconds: float | None = None) -> None:
        time.sleep(self.slow.get(url, 0.0) if seconds is None else seconds)
        if url in self.out:
            self.failed_uses.release()
            raise ConnectionLost(f"the connection to {url} broke")
