"""`drafter serve` while its verifier is away, or is replaced by one of another model."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Outage, Pair
from drafter_client.serve.app import AppOptions, create_app
from tests.drafter_client.another_model import Address, swapped_vocabulary
from tests.drafter_client.support import serving
from tests.gateway.openai_api.conftest import served

ASK = {"prompt": "def f(x):", "max_tokens": 5, "temperature": 0}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    backends = {
        "first": ScriptedBackend(Script(seed=1)),
        "second": ScriptedBackend(Script(seed=2)),
        "foreign": swapped_vocabulary(ScriptedBackend(Script(seed=3))),
    }
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(backend)).url for name, backend in backends.items()}
        drafts = ScriptedBackend(Script(seed=1))
        yield urls | {"drafts": stack.enter_context(serving(drafts, draft_backend="ngram")).url}


@pytest.fixture
def drafter(urls: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Address, httpx.Client, "Looks"]]:
    monkeypatch.setattr("drafter_client.http.retries.CHECK_PAUSE", 0.01)
    with Address(urls, "first") as address:
        looks = Looks()
        pair = Pair(
            "http://verifier",
            DraftModel(Path("1"), "scripted"),
            transport=address,
            start_patience=0.05,
            on_outage=looks.told.append,
        )
        look = pair.look
        monkeypatch.setattr(pair, "look", lambda: looks.look(look))
        with (
            served(create_app(pair, Options(), texts=2, queue=2, how=AppOptions(look_every=0.01))) as url,
            httpx.Client(base_url=url, trust_env=False, timeout=20) as http,
        ):
            yield address, http, looks


class Looks:
    """Counts the looks at the verifier."""

    def __init__(self) -> None:
        self.told: list[Outage] = []
        self._looked = threading.Condition()
        self._count = 0

    def look(self, look: Callable[[], None]) -> None:
        look()
        with self._looked:
            self._count += 1
            self._looked.notify_all()

    def wait(self) -> None:
        """Return after a look that begins later than now."""
        with self._looked:
            after = self._count + 2
            assert self._looked.wait_for(lambda: self._count >= after, 20)


Drafter = tuple[Address, httpx.Client, Looks]


def test_it_tells_when_the_verifier_is_away(drafter: Drafter) -> None:
    address, http, looks = drafter
    address.turn(502)
    looks.wait()
    ready, health = http.get("/ready"), http.get("/health")
    assert (ready.status_code, ready.json(), ready.headers["Retry-After"]) == (503, {"status": "verifier_away"}, "5")
    assert (health.status_code, health.json()["status"]) == (503, "verifier_away")
    assert "HTTP 502" in health.json()["reason"] and http.get("/live").status_code == 200
    refused = http.post("/v1/completions", json=ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "verifier_away")
    assert int(refused.headers["Retry-After"]) == 5
    address.turn("first")
    looks.wait()
    assert http.get("/ready").status_code == http.get("/health").status_code == 200
    assert http.post("/v1/completions", json=ASK).status_code == 200
    assert [each.over for each in looks.told].count(True) == 1 and looks.told[-1].over


def test_another_model_is_taken_over_under_its_name(drafter: Drafter) -> None:
    address, http, looks = drafter
    assert http.post("/v1/completions", json=ASK).json()["model"] == "scripted-1"
    address.turn("second")
    looks.wait()
    assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["scripted-2"]
    assert http.get("/health").json()["model"] == "scripted-2"
    assert http.post("/v1/completions", json=ASK).json()["model"] == "scripted-2"
    assert http.post("/v1/completions", json=ASK | {"model": "scripted-1"}).status_code == 404


def test_a_model_that_does_not_pair_is_refused_until_it_does(drafter: Drafter) -> None:
    address, http, looks = drafter
    address.turn("foreign")
    looks.wait()
    refused = http.post("/v1/completions", json=ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_mismatch")
    assert refused.json()["error"]["param"] is None and "cannot draft for scripted-3" in refused.text
    assert refused.headers["Retry-After"] and http.get("/v1/models").status_code == 503
    assert http.get("/ready").json() == {"status": "model_mismatch"}
    assert "cannot draft for" in http.get("/health").json()["reason"]
    address.turn("first")
    looks.wait()
    assert http.get("/ready").status_code == 200 and http.post("/v1/completions", json=ASK).status_code == 200


def _served(address: Address, options: Options = Options()) -> AbstractContextManager[str]:
    """A service that looks at its verifier only when it serves a request."""
    pair = Pair("http://verifier", DraftModel(Path("1"), "scripted"), transport=address, start_patience=0.05)
    return served(create_app(pair, options, texts=1, queue=2, how=AppOptions(look_every=60.0)))


def _ask(url: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=ASK | more, trust_env=False, timeout=20)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_caught_in_the_change_is_answered_by_the_new_model(
    urls: dict[str, str], stream: bool
) -> None:
    with Address(urls, "first") as address, _served(address) as url:
        assert _ask(url).json()["model"] == "scripted-1"
        address.turn("second")
        reply = _ask(url, stream=stream)
        chunks = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
        found = [json.loads(chunk) for chunk in chunks] if stream else [reply.json()]
        assert reply.status_code == 200 and {each["model"] for each in found} == {"scripted-2"}
        assert len({each["id"] for each in found}) == 1
        text = "".join(each["choices"][0]["text"] for each in found)
        assert text == _ask(url).json()["choices"][0]["text"]


def test_a_request_for_the_old_model_by_name_is_not_answered_by_another(urls: dict[str, str]) -> None:
    with Address(urls, "first") as address, _served(address) as url:
        address.turn("second")
        refused = _ask(url, model="scripted-1")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "target_changed")


def test_texts_go_on_where_the_verifier_has_no_draft_model_any_more(urls: dict[str, str]) -> None:
    with Address(urls, "drafts") as address, _served(address, Options(mode=Mode.FUSED)) as url:
        before = _ask(url).json()["choices"]
        address.turn("first")
        for _ in range(2):  # the first finds it out, the second knows
            assert _ask(url).json()["choices"] == before


def test_a_text_in_the_queue_waits_for_the_verifier_no_longer_than_others(urls: dict[str, str]) -> None:
    """The text ahead of it has begun, and waits for as long as it takes."""
    with Address(urls, "first") as address, _served(address) as url, ThreadPoolExecutor(1) as pool:
        began = threading.Event()

        def stream() -> None:
            body = ASK | {"stream": True, "max_tokens": 900}
            with httpx.stream("POST", f"{url}/v1/completions", json=body, trust_env=False, timeout=60) as reply:
                for _ in reply.iter_lines():
                    began.set()

        reading = pool.submit(stream)
        assert began.wait(20)
        address.turn(502)
        refused = _ask(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "verifier_away")
        assert not reading.done() and "has waited" in refused.text
        address.turn("first")
        reading.result(30)
