"""SIGTERM drains: texts under way end, new ones are refused, and the process ends with status 0."""

import signal

import httpx
import pytest

from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from specpair.protocol.errors import ShuttingDown
from tests.forking import Process
from tests.verifier_server.conftest import SCRIPT
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.processes import COMMANDS, ENDLESS, MODULE, UVICORN, hasty, ready

IDS = [256, 1, 2]
BOTH = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def drain(process: Process, http: httpx.Client) -> None:
    """Send SIGTERM; returns when the verifier drains."""
    process.send_signal(signal.SIGTERM)
    while http.get("/health").json()["status"] != "draining":
        pass


def errors(process: Process) -> str:
    """The rest of its log."""
    assert process.stderr is not None
    return process.stderr.read()


@BOTH
def test_text_under_way_ends_and_new_ones_are_refused(command: list[str]) -> None:
    text = plain(SCRIPT, IDS, 6)
    opening = {"session_id": "a", "prompt_ids": IDS, "max_tokens": 6}
    with ready(command, **ENDLESS, VERIFIER_DRAIN_SECONDS="60") as (process, http):
        http.post("/prefill", json=opening).raise_for_status()
        with http.stream("GET", "/sessions/a/stream") as pushed:  # a drafter listens, so its text is under way
            lines = pushed.iter_lines()
            assert next(lines) == "event: tokens"
            drain(process, http)
            refused = [
                http.post("/prefill", json={"session_id": "b", "prompt_ids": IDS}),
                http.post("/generate", json={"prompt_ids": IDS}),
            ]
            for response in refused:
                assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
                assert response.headers["retry-after"] == "1"
            assert (http.get("/ready").status_code, http.get("/ready").json()) == (503, {"status": "draining"})
            assert (http.get("/live").status_code, http.get("/live").json()) == (200, {"status": "alive"})
            assert http.get("/metrics").status_code == 200
            again = http.post("/prefill", json=opening).json()
            assert (again["tokens"], again["total_tokens"]) == (text[:1], 4)
            body = {"session_id": "a", "position": 4, "draft_tokens": text[1:]}
            assert http.post("/verify", json=body).json()["finish_reason"] == "length"
            assert "event: end" in list(lines)
        assert process.wait(20) == 0
        assert "Traceback" not in errors(process)


def test_drafter_s_text_is_written_to_its_end() -> None:
    options = Options(max_tokens=60, mode=Mode.REMOTE, lockstep=True)
    told: list[Outage] = []
    with ready(UVICORN, **ENDLESS) as (process, http):
        with (
            Pair(str(http.base_url), Lookup(), on_outage=told.append) as pair,
            Pair(str(http.base_url), Lookup(), patience=0.0) as late,
        ):
            generation = pair.generate(IDS, options)
            tokens = [*next(event.tokens for event in generation if isinstance(event, Tokens))]
            drain(process, http)
            with pytest.raises(ShuttingDown):
                list(late.generate(IDS, options))
            tokens += [token for event in generation if isinstance(event, Tokens) for token in event.tokens]
        assert [token.id for token in tokens] == plain(SCRIPT, IDS, 60) and told == []
        assert process.wait(20) == 0


def test_text_that_does_not_end_in_time_gets_an_error() -> None:
    with ready(hasty(MODULE), **ENDLESS, VERIFIER_DRAIN_SECONDS="0.2") as (process, http):
        body = {"prompt_ids": IDS, "stream": True, "temperature": 1.0}
        with http.stream("POST", "/generate", json=body) as written:
            lines = written.iter_lines()
            assert next(lines) == "event: open"
            process.send_signal(signal.SIGTERM)
            assert '"code":"shutting_down"' in list(lines)[-2]
        assert process.wait(20) == 0
        assert "draining took too long" in errors(process)
