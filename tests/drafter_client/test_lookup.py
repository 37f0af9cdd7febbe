"""Prompt lookup without a draft model, with a real verifier whose vocabulary is used."""

import json
import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.errors import BadReply
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafter_client.http.text_session import TextSession
from specpair.drafters.lookup import NgramDrafter
from specpair.protocol.responses import GenerateResponse
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier, generate, options_of, running
from verifier_server.settings import Settings


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    """A toy target with few likely tokens, so that its text repeats itself."""
    with running(Settings(backend="scripted"), ScriptedBackend(Script(support=9, sharpness=8.0))) as started:
        yield started


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, Mechanisms()], ids=["lockstep", "overlapped"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_text_equals_target_alone(verifier: Verifier, mechanisms: Mechanisms, temperature: float) -> None:
    sampling = Sampling(seed=4, temperature=temperature)
    with closing(VerifierClient(verifier.url)) as client:
        info = client.model()
        prompt = RemoteVocabulary(client, info).encode("to be or not to be")
        options = options_of(sampling, 120)
        *_, end = client.generate(TextSession(prompt), options)
        length = 4 if mechanisms is LOCKSTEP else None
        run = generate(client, NgramDrafter(3), length, prompt, info=info, mechanisms=mechanisms, **options)
    assert isinstance(end, GenerateResponse) and run.tokens == end.token_ids
    if mechanisms is LOCKSTEP and not temperature:
        assert run.stats.accepted > 20


def test_vocabulary_with_another_fingerprint_is_refused(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        info, other = client.model(), json.loads(client.call("GET", "/vocabulary", None))
        other["pieces"] = [*other["pieces"][:-3], "x", *other["pieces"][-2:]]
        monkeypatch.setattr(client, "call", lambda *_: json.dumps(other).encode())
        with pytest.raises(BadReply, match="is not the one that it names"):
            RemoteVocabulary(client, info)


def test_command_line_needs_no_draft_model(verifier: Verifier, drafter: Command) -> None:
    flags = ("--verifier", verifier.url, "--backend", "ngram", "--prompt", "abc abc abc", "--max-tokens", "30")
    ran = drafter(*flags, "--draft-n", "3", "--lockstep", "--baseline", "--stats")
    assert ran.status == 0
    assert "n-gram lookup drafts for scripted-1" in ran.err
    assert "same text" in ran.err
    metrics = re.findall(r"(draft tokens|looked up|looked up, accepted|accepted) +(\d+)", ran.err)
    counted = {name: int(count) for name, count in metrics}
    assert counted["looked up"] == counted["draft tokens"] > 0 and counted["looked up, accepted"] == counted["accepted"]
    assert len(ran.out.rstrip("\n")) == 30
