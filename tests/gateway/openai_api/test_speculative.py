"""A request says who drafts for its texts, and how much: the text stays the same, and what cannot be had is refused."""

import json
import logging
import queue
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from drafter_client import Mode, Options
from specpair.http_service.observability.logs import JsonFormatter
from tests.gateway.openai_api.conftest import drafting, endpoints, verifier

Json = dict[str, Any]
PROMPT = "def main(x):"
PASS = 0.005  # seconds
LENGTH, FEWER = 40, 31  # tokens of a text, and of one whose line in the log is read
HAD = {"target": ["off", "auto"], "fused": ["off", "auto", "fused"], "drafter": ["off", "auto", "remote"]}
NAMES = {"off": "target", "auto": "auto", "remote": "remote", "fused": "fused"}  # as log lines have them
WHY = {
    ("target", "fused"): "this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL",
    ("target", "remote"): "send this one to `drafter serve`",
    ("fused", "remote"): "send this one to `drafter serve`",
    ("drafter", "fused"): "its verifier has no draft model: start that with VERIFIER_DRAFT_MODEL",
}


def _asked(url: str, **given: Any) -> httpx.Response:
    body = {"prompt": PROMPT, "max_tokens": LENGTH, "seed": 5} | given
    return httpx.post(f"{url}/v1/completions", json=body, trust_env=False, timeout=60)


def _generated(url: str, **given: Any) -> Json:
    reply = _asked(url, **given)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def _text(reply: Json) -> str:
    return str(reply["choices"][0]["text"])


class Lines(logging.Handler):
    """The lines that are logged of texts."""

    def __init__(self) -> None:
        super().__init__()
        self._came: queue.Queue[Json] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._came.put(json.loads(JsonFormatter().format(record)))

    def mode_of(self, tokens: int, of_drafter: bool) -> str:
        """The mode in the line about a text of so many tokens, a drafter's or that of a verifier, which has a session.

        Lines of other texts may come late.
        """
        while True:
            line = self._came.get(timeout=20)
            if line["generated_tokens"] == tokens and ("session_id" not in line) == of_drafter:
                return str(line["mode"])


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    logger, handler = logging.getLogger("specpair.texts"), Lines()
    caplog.set_level(logging.INFO, logger.name)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture(scope="module", params=["target", "fused", "drafter"])
def kind(request: pytest.FixtureRequest) -> str:
    """A verifier alone, one with server-side drafting, or a drafter."""
    return str(request.param)


@pytest.fixture(scope="module")
def url(kind: str) -> Iterator[str]:
    with endpoints(kind, PASS) as (url, _):
        yield url


@pytest.fixture(scope="module")
def lockstep() -> Iterator[str]:
    """A drafter that drafts nothing while a draft is judged."""
    with verifier(PASS) as live, drafting(live.url, options=Options(lockstep=True), texts=1, queue=2) as url:
        yield url


@pytest.fixture(scope="module")
def undrafted() -> Iterator[str]:
    """A service that drafts nothing unless a request says so, and has no draft model."""
    with verifier() as live, drafting(live.url, draft=None, options=Options(mode=Mode.TARGET)) as url:
        yield url


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("mode", ["off", "auto", "remote", "fused"])
def test_the_text_is_the_same_in_each_mode(url: str, kind: str, lines: Lines, mode: str, temperature: float) -> None:
    if mode not in HAD[kind]:
        error = _asked(url, speculative={"mode": mode}).json()["error"]
        assert (error["code"], error["param"]) == ("mode_unavailable", "speculative.mode")
        assert error["message"].startswith(f"speculative.mode: {mode}: ") and WHY[kind, mode] in error["message"]
        return
    reply = _generated(url, temperature=temperature, speculative={"mode": mode}, max_tokens=FEWER)
    assert lines.mode_of(FEWER, kind == "drafter") == NAMES[mode] or mode == "auto"
    assert mode != "off" or reply["timings"]["draft_n"] == 0
    assert _text(reply) == _text(_generated(url, temperature=temperature))[:FEWER]


@pytest.mark.parametrize("draft_n", [0, 1, 3])
def test_a_draft_has_as_many_tokens_as_the_request_says(url: str, kind: str, lockstep: str, draft_n: int) -> None:
    if kind == "target":
        error = _asked(url, speculative={"draft_n": draft_n}).json()["error"]
        assert (error["code"], error["param"]) == ("mode_unavailable", "speculative.draft_n")
        return
    asked = lockstep if kind == "drafter" else url  # else a request has those that are under way, too
    reply = _generated(asked, speculative={"draft_n": draft_n})
    assert _text(reply) == _text(_generated(url))
    found = reply["metrics"]["speculative_decoding"]
    assert found["num_spec_tokens"] <= draft_n
    assert kind != "drafter" or (found["num_draft_tokens"] > 0) == (draft_n > 0)


def test_a_prediction_is_drafted_from_where_there_is_no_draft_model(url: str, kind: str) -> None:
    text = _text(_generated(url, temperature=0))
    options: Json = {"temperature": 0, "prediction": {"type": "content", "content": text}}
    if kind == "target":  # elsewhere, a draft model may be quicker than the prediction
        fused = _generated(url, **options, speculative={"mode": "fused", "draft_n": 4})
        assert _text(fused) == text and fused["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 8
        assert fused["metrics"]["speculative_decoding"]["num_spec_tokens"] <= 4
    off = _generated(url, **options, speculative={"mode": "off"})
    assert _text(off) == text and off["timings"]["draft_n"] == 0


def test_a_service_without_a_draft_model_says_so(undrafted: str) -> None:
    assert _text(_generated(undrafted)) == _text(_generated(undrafted, speculative={"mode": "auto"}))
    for speculative, param, why in (
        ({"mode": "remote"}, "mode", "this service has no draft model"),
        ({"draft_n": 2}, "draft_n", "neither this service nor its verifier drafts"),
        ({"mode": "auto", "draft_n": 2}, "draft_n", "neither this service nor its verifier drafts"),
    ):
        reply = _asked(undrafted, speculative=speculative)
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, f"speculative.{param}") and why in error["message"]


@pytest.mark.parametrize(
    ("speculative", "param", "message"),
    [
        ({"mode": "target"}, "speculative.mode", "'off', 'auto', 'remote' or 'fused'"),
        ({"mode": "off", "draft_n": 2}, "speculative", "nothing is drafted in mode off"),
        ({"draft_n": -1}, "speculative.draft_n", "greater than or equal to 0"),
        ({"draft_n": 10_000}, "speculative.draft_n", "draft tokens that the verifier judges at once"),
        ({"draft_n": 1.5}, "speculative.draft_n", "integer"),
        ({"n_max": 3}, "speculative.n_max", "its name is draft_n here"),
        ("off", "speculative", "object"),
    ],
)
def test_what_is_wrong_with_it_is_a_400(url: str, speculative: Any, param: str, message: str) -> None:
    reply = _asked(url, speculative=speculative)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param) and message in error["message"], error
