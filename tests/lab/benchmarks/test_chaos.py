"""A verifier is killed and started again while a text is written: in each mode the text equals the undisturbed one.

Through the drafter's endpoint as well as by the library.
"""

import json
import signal
from collections.abc import Iterator

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from drafter_client.serve.app import create_app
from gateway.openai_api import generation
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.gateway.openai_api.conftest import served
from tests.lab.benchmarks.chaos import Chaos, RestartedVerifier

pytestmark = pytest.mark.slow

TOKENS = 200
PACE = "5,0.01,0.01"  # milliseconds of a pass: the text must not be written before the signal arrives
ENDS = {  # tokens at which the verifier is ended; the seed by which Chaos draws SIGTERM and SIGKILL
    Mode.REMOTE: (30, 120),
    Mode.FUSED: (50, 100),
    Mode.TARGET: (1, 150),
    Mode.AUTO: (40, 110),
}


@pytest.fixture(scope="module")
def verifier() -> Iterator[RestartedVerifier]:
    settings = {"VERIFIER_BACKEND": "scripted", "VERIFIER_DRAFT_BACKEND": "ngram", "PACED_TARGET": PACE}
    settings["VERIFIER_DRAIN_SECONDS"] = "0"  # else SIGTERM would let the text end
    with RestartedVerifier("tests.lab.benchmarks.hasty_verifier:app", settings) as running:
        yield running


@pytest.mark.parametrize("mode", Mode)
def test_a_text_is_resumed_after_its_verifier_was_killed(verifier: RestartedVerifier, mode: Mode) -> None:
    told: list[Outage] = []
    chaos = Chaos(verifier, ENDS[mode], seed=2)
    options = Options(max_tokens=TOKENS, temperature=0.8, seed=7, mode=mode)
    with Pair(verifier.url, Lookup(), on_outage=told.append) as pair, chaos.running():
        generation = pair.generate("def f(x):", options)
        for event in generation:
            if isinstance(event, Tokens):
                chaos.arrived(len(event.tokens))
        stats = generation.stats
    assert stats.token_ids == plain(ScriptedBackend(Script(seed=1)), generation.prompt_ids, TOKENS, options.sampling)
    assert {how for _, how in chaos.ended} == {signal.SIGKILL.name, signal.SIGTERM.name}
    assert len(stats.resumed) >= 2 and stats.finish_reason == "length" and told
    assert stats.resumed[0] >= chaos.ended[0][0] and stats.resumed[-1] >= chaos.ended[-1][0]
    assert sum(stats.sources.values()) == TOKENS and stats.resumed == sorted(set(stats.resumed))


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.AUTO])
def test_a_stream_of_the_endpoint_goes_on_after_its_verifier_was_killed(
    verifier: RestartedVerifier, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.05)
    chaos = Chaos(verifier, ENDS[mode], seed=2)
    pair = Pair(verifier.url, Lookup(), texts=2)
    body = {"prompt": "def f(x):", "max_tokens": TOKENS, "temperature": 0.8, "seed": 7, "stream": True, "logprobs": 0}
    tokens, comments, lines = 0, 0, list[str]()
    with served(create_app(pair, Options(mode=mode), texts=2, queue=2)) as url, chaos.running():
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60, trust_env=False) as reply:
            for line in reply.iter_lines():
                comments += line.startswith(":")  # bare, or that the verifier is away
                if line.startswith("data: {"):
                    lines.append(line)
                    new = len(json.loads(line[6:])["choices"][0]["logprobs"]["tokens"])
                    tokens += new
                    chaos.arrived(new)
        prompt_ids = ScriptedBackend(Script(seed=1)).vocabulary.encode("def f(x):")
        expected = plain(ScriptedBackend(Script(seed=1)), prompt_ids, TOKENS, Sampling(7, 0.8))
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines)
        assert text == bytes(expected).decode(errors="replace") and tokens == TOKENS
        assert len(chaos.ended) == 2 and comments, "the stream showed that it lives while its verifier was away"
        after = httpx.post(f"{url}/v1/completions", json=body | {"stream": False}, timeout=60, trust_env=False).json()
        assert after["choices"][0]["text"] == text
