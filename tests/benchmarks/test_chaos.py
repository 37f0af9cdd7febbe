"""A verifier is killed and started again while a text is written: in each mode the text equals the undisturbed one."""

import signal
from collections.abc import Iterator

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import Lookup, Mode, Options, Outage, Pair, Tokens
from tests.benchmarks.chaos import Chaos, RestartedVerifier
from tests.drafter_client.support import plain

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
    with RestartedVerifier("tests.benchmarks.hasty_verifier:app", settings) as running:
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
