"""No prompt, text, token id of a text or key is in a log, a metric or an error."""

import logging
from collections.abc import Sequence

import pytest

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.http_service.observability import logs
from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import plain

KEY, PROMPT = "k3y-Zxqv", "pr0mpt-Zxqv"
MARKED = "Zxqv"


class Failing(ScriptedBackend):
    """A backend whose next pass fails with `fault`, if set."""

    fault: Exception | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return super()._forward(batch)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_marked_prompt_and_key_are_nowhere(
    serve: Serve, caplog: pytest.LogCaptureFixture, log_format: logs.LogFormat
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = Failing(SCRIPT)
    live = serve(backend, draft=ScriptedBackend(SCRIPT), api_key=KEY, access_log=True, metrics_by_key=True, wait=False)
    live.http.headers["Authorization"] = f"Bearer {KEY}"
    live.wait_until_ready()
    told = []
    body = {"session_id": "a", "prompt": PROMPT, "max_tokens": 20}
    told.append(live.http.post("/prefill", json={**body, "prompt": PROMPT * 2000}))  # too long
    opened = live.post("/prefill", body)
    text = plain(SCRIPT, opened["prompt_ids"], 12)
    live.post("/verify", {"session_id": "a", "position": opened["total_tokens"], "draft_tokens": text[1:5]})
    told.append(live.http.post("/prefill", json={**body, "max_tokens": 21}))  # another text under the same id
    told.append(live.http.post("/prefill", json={**body, "prompt": [PROMPT]}))
    told.append(live.http.post("/prefill", content=f'{{"prompt": "{PROMPT}'))
    told.append(live.http.post("/generate", json={"prompt": PROMPT, "mode": PROMPT}))
    told.append(live.http.get("/sessions", headers={"Authorization": f"Bearer {KEY}x"}))
    for mode in ("target", "fused"):
        live.post("/generate", {"prompt": PROMPT, "max_tokens": 5, "mode": mode})
    backend.fault = EngineFailure("out of memory")
    told.append(live.http.post("/prefill", json={**body, "session_id": "b"}))
    backend.fault = RuntimeError("a bug")  # the engine dies, with a traceback
    told.append(live.http.post("/prefill", json={**body, "session_id": "c"}))
    metrics = live.http.get("/metrics").text
    formatter = logs.JsonFormatter() if log_format == "json" else logs.PlainFormatter()
    lines = [formatter.format(record) for record in caplog.records if not record.name.startswith("httpcore")]
    assert any("the engine died" in line for line in lines)
    assert any("a forward pass over 1 sessions failed" in line and "b" in line for line in lines)
    assert sum("/prefill" in line for line in lines) >= 5, "access lines"
    assert all(response.status_code >= 400 for response in told)
    ids = ", ".join(map(str, opened["prompt_ids"][1:])), ", ".join(map(str, text[:3]))
    for written in (*lines, metrics, *(response.text for response in told)):
        assert MARKED not in written
        assert all(each not in written for each in ids)
