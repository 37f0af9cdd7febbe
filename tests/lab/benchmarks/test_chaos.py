"""A verifier is killed and started again while a text is written: in each mode the text equals the undisturbed one.

Through the drafter's endpoint as well as by the library.
"""

import json
import random
import signal
import socket
import threading
from contextlib import ExitStack, closing, suppress

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from drafter_client.serve.app import create_app
from gateway.openai_api import generation
from specpair.child_processes.serving import serve
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.gateway.openai_api.conftest import served

pytestmark = pytest.mark.slow

TOKENS = 200
PACE = "5,0.01,0.01"  # milliseconds of a pass: the text must not be written before the signal arrives
SETTINGS = {
    **{"VERIFIER_BACKEND": "scripted", "VERIFIER_DRAFT_BACKEND": "ngram", "PACED_TARGET": PACE},
    "VERIFIER_DRAIN_SECONDS": "0",  # else SIGTERM would let the text end
}
ENDS = {  # tokens at which the verifier is ended, by SIGKILL and by SIGTERM
    Mode.REMOTE: (30, 120),
    Mode.FUSED: (50, 100),
    Mode.TARGET: (1, 150),
    Mode.AUTO: (40, 110),
}


def _free_port() -> int:
    """A port that stays free while the verifier is away: the system gives none of these to outgoing connections."""
    for port in random.sample(range(20_000, 30_000), 100):
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port
    raise RuntimeError("no free port")


class KilledVerifier:
    """A verifier that is ended when so many tokens have arrived, and started again at the same address."""

    def __init__(self, at: tuple[int, int]) -> None:
        self._signals = list(zip(at, (signal.SIGKILL, signal.SIGTERM), strict=True))
        self._running, self._starting = ExitStack(), threading.Thread()
        self._tokens = 0
        self.ended: list[int] = []  # tokens that had arrived
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "KilledVerifier":
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._starting.join()
        self._running.close()

    def _start(self) -> None:
        serving = serve("tests.lab.benchmarks.hasty_verifier:app", SETTINGS, port=self._port)
        self._process = self._running.enter_context(serving).process

    def arrived(self, tokens: int) -> None:
        """So many more tokens have arrived."""
        self._tokens += tokens
        if self._signals and self._tokens >= self._signals[0][0] and not self._starting.is_alive():
            self.ended.append(self._tokens)
            self._process.send_signal(self._signals.pop(0)[1])
            self._process.wait(30)
            self._running.close()
            self._starting = threading.Thread(target=self._start)
            self._starting.start()


@pytest.mark.parametrize("mode", Mode)
def test_a_text_is_resumed_after_its_verifier_was_killed(mode: Mode) -> None:
    told: list[Outage] = []
    options = Options(max_tokens=TOKENS, temperature=0.8, seed=7, mode=mode)
    with KilledVerifier(ENDS[mode]) as verifier, Pair(verifier.url, Lookup(), on_outage=told.append) as pair:
        generation = pair.generate("def f(x):", options)
        for event in generation:
            if isinstance(event, Tokens):
                verifier.arrived(len(event.tokens))
        stats = generation.stats
    assert stats.token_ids == plain(ScriptedBackend(Script(seed=1)), generation.prompt_ids, TOKENS, options.sampling)
    assert len(verifier.ended) == 2
    assert len(stats.resumed) >= 2 and stats.finish_reason == "length" and told
    assert stats.resumed[0] >= verifier.ended[0] and stats.resumed[-1] >= verifier.ended[-1]
    assert sum(stats.sources.values()) == TOKENS and stats.resumed == sorted(set(stats.resumed))


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.AUTO])
def test_a_stream_of_the_endpoint_goes_on_after_its_verifier_was_killed(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.05)
    body = {"prompt": "def f(x):", "max_tokens": TOKENS, "temperature": 0.8, "seed": 7, "stream": True, "logprobs": 0}
    tokens, comments, lines = 0, 0, list[str]()
    with (
        KilledVerifier(ENDS[mode]) as verifier,
        served(create_app(Pair(verifier.url, Lookup(), texts=2), Options(mode=mode), texts=2, queue=2)) as url,
    ):
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60, trust_env=False) as reply:
            for line in reply.iter_lines():
                comments += line.startswith(":")  # bare, or that the verifier is away
                if line.startswith("data: {"):
                    lines.append(line)
                    new = len(json.loads(line[6:])["choices"][0]["logprobs"]["tokens"])
                    tokens += new
                    verifier.arrived(new)
        prompt_ids = ScriptedBackend(Script(seed=1)).vocabulary.encode("def f(x):")
        expected = plain(ScriptedBackend(Script(seed=1)), prompt_ids, TOKENS, Sampling(7, 0.8))
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines)
        assert text == bytes(expected).decode(errors="replace") and tokens == TOKENS
        assert len(verifier.ended) == 2 and comments, "the stream showed that it lives while its verifier was away"
        after = httpx.post(f"{url}/v1/completions", json=body | {"stream": False}, timeout=60, trust_env=False).json()
        assert after["choices"][0]["text"] == text
