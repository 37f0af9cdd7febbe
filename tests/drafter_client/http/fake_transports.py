"""Transports with canned responses, or that fail on purpose, and a clock that takes no time."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx

from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient

LOST = ConnectionLost("the connection broke")


def reply(status: int, body: Any = None, **headers: str) -> httpx.Response:
    """A response with a JSON body."""
    return httpx.Response(status, content=json.dumps(body), headers={"Content-Type": "application/json"} | headers)


def streamed(events: Iterable[tuple[str, Any]]) -> httpx.Response:
    """A response of server-sent events."""

    def parts() -> Iterator[bytes]:
        for name, data in events:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    return httpx.Response(200, content=parts())


class Faulty(httpx.BaseTransport):
    """Real connections. `before` and `after` a request are called with its number and path, and may raise."""

    def __init__(
        self, *, before: Callable[[int, str], None] | None = None, after: Callable[[int, str], None] | None = None
    ) -> None:
        self._inner, self._before, self._after = httpx.HTTPTransport(), before, after
        self.asked: list[str] = []
        self.bodies: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        number, path = len(self.asked), request.url.path
        self.asked.append(path)
        self.bodies.append(request.read())
        if self._before is not None:
            self._before(number, path)
        response = self._inner.handle_request(request)
        response.read()
        if self._after is not None:
            self._after(number, path)
        return response

    def close(self) -> None:
        self._inner.close()


class Canned(httpx.MockTransport):
    """Answers from a list, in which an exception is raised. Records its requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(self.answer)
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Method and path of each request."""
        return [(each.method, each.url.raw_path.decode()) for each in self.requests]

    @property
    def bodies(self) -> list[bytes]:
        return [each.content for each in self.requests]

    @property
    def timeouts(self) -> list[float]:
        """Seconds to wait for each response."""
        return [each.extensions["timeout"]["read"] for each in self.requests]


class Every:
    """Raises ConnectionLost at every n-th exchange."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __call__(self, number: int, path: str) -> None:
        if number % self._n == self._n - 1:
            raise LOST


@contextmanager
def over(transport: Faulty, url: str) -> Iterator[VerifierClient]:
    with closing(transport), closing(VerifierClient(url, transport=transport, sleep=lambda _: None)) as client:
        yield client
