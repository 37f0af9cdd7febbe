"""A transport that fails on purpose, one with canned responses, and a clock that takes no time."""

from collections.abc import Callable, Iterator
from typing import Any

from drafter_client.http.transport import HttpTransport, Reply

Exchange = tuple[str, str]  # method and path


class Faulty:
    """A real connection. `before` and `after` a request are called with its number and path, and may raise."""

    def __init__(
        self,
        url: str,
        *,
        before: Callable[[int, str], None] | None = None,
        after: Callable[[int, str], None] | None = None,
    ) -> None:
        self._inner, self._before, self._after = HttpTransport(url), before, after
        self.asked: list[str] = []
        self.bodies: list[bytes | None] = []

    @property
    def sent(self) -> int:
        return self._inner.sent

    @property
    def received(self) -> int:
        return self._inner.received

    def begin(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
        pass  # faults happen in `exchange`

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        number = len(self.asked)
        self.asked.append(path)
        self.bodies.append(body)
        if self._before is not None:
            self._before(number, path)
        reply = self._inner.exchange(method, path, body, headers, timeout)
        if self._after is not None:
            self._after(number, path)
        return reply

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        return self._inner.stream(path, body, headers, timeout)

    def connect(self) -> None:
        self._inner.connect()

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        self._inner.close()


class Canned:
    """Answers from a list, in which an exception is raised. Records its requests."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self._answers = list(answers)
        self.sent = self.received = 0
        self.asked: list[Exchange] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes | None] = []
        self.timeouts: list[float] = []
        self.aborted = False

    def begin(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
        pass  # faults happen in `exchange`

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        self.asked.append((method, path))
        self.bodies.append(body)
        self.headers.append(headers)
        self.timeouts.append(timeout)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        yield "reply", self.exchange("GET" if body is None else "POST", path, body, headers, timeout)

    def connect(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        pass


class Sleeper:
    """A clock, and a sleep that only moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
