"""Replies of a verifier, transports with canned ones, or that fail on purpose, and a clock that takes no time."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import httpx

from backends.scripted import ByteVocabulary
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.response_fields import FinishReason, Response, SamplingReport, Timing
from specpair.protocol.responses import PrefillResponse, VerifyResponse
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import marks_of, split
from specpair.speculation.text_options import TextSpec

TIMING = Timing(queue_ms=0.5, forward_ms=1.5, sessions=1)
SAMPLING = SamplingReport.of(TextSpec(seed=0))


def body(response: Response) -> dict[str, Any]:
    """The JSON object of a response."""
    read: dict[str, Any] = json.loads(response.body())
    return read


def model_info(**changed: Any) -> ModelInfo:
    """A verifier with the toy vocabulary."""
    vocabulary: Fingerprint = ByteVocabulary().fingerprint
    info: dict[str, Any] = {
        "name": "honest",
        "identity": "",
        "engine": "scripted",
        "context_length": 1024,
        "rows": 4,
        "kv_bytes": 0,
        "max_drafts": 8,
        "pass_ms": [1.0, 1.5],
        "strategies": [*map(str, Strategy)],
        "self_continue": True,
        "modes": ["target"],
        "predictions": True,
        "draft_model": None,
        "draft_pass_ms": None,
        "noise": "gumbel-1",
        "vocabulary": vocabulary,
        "chat_template": None,
    }
    return ModelInfo(**info | changed)


def prefilled(prompt_ids: list[int], tokens: list[int], known: int = 0, **changed: Any) -> PrefillResponse:
    """The response to a prefill with `known` committed tokens."""
    position = len(prompt_ids) + known
    opened: dict[str, Any] = {
        "session_id": "s",
        "prompt_len": len(prompt_ids),
        "prompt_ids": prompt_ids,
        "position": position,
        "tokens": tokens,
        "total_tokens": position + len(tokens),
        "finish_reason": None,
        "model": "honest",
        "identity": "",
        "vocabulary": ByteVocabulary().fingerprint,
        "sampling": SAMPLING,
        "self_continue": False,
        "timing": TIMING,
        "sources": split("b" * len(tokens)),
    }
    return PrefillResponse(**opened | changed)


def verified(
    tokens: Sequence[int],
    accepted: int = 0,
    judged: int = 0,
    *,
    position: int = 10,
    unjudged: int = 0,
    finish_reason: FinishReason | None = None,
    queue_ms: float = 0.5,
    forward_ms: float = 1.5,
    sessions: int = 1,
) -> VerifyResponse:
    """The response to a verify request, which brings its own pass only."""
    sources = marks_of([True] * accepted + [False] * (len(tokens) - accepted), judged) if tokens else []
    return VerifyResponse(
        position=position,
        accepted=accepted,
        judged=judged,
        unjudged=unjudged,
        tokens=list(tokens),
        preds=list(tokens),
        sources=sources,
        total_tokens=position + len(tokens),
        finish_reason=finish_reason,
        timing=Timing(queue_ms=queue_ms, forward_ms=forward_ms, sessions=sessions),
    )


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
