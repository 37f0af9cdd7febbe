"""Prompt lookup without a draft model, with a real verifier whose vocabulary is used."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from drafter_client.draft_sources import Lookup
from drafter_client.errors import BadReply
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from specpair.drafters.base import NgramDrafter
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


def test_drafts_are_what_followed_earlier_occurrences() -> None:
    drafter = NgramDrafter(width=3)
    expansion = drafter.expand([1, 2, 3, 1, 2], [[], [3], [9]], runners_up=True)
    assert [proposal.token for proposal in expansion.proposals] == [3, 1, 9]
    assert expansion.read == 3
    assert expansion.proposals[2].confidence == 0.0, "an unknown continuation has no confidence"
    grown = drafter.expand([1, 2, 3, 1, 2, 3, 1, 7], [[1]], runners_up=False)
    assert (grown.proposals[0].token, grown.read) == (7, 1)


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


def test_remote_vocabulary_equals_the_verifiers(verifier: Verifier) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        ours, theirs = RemoteVocabulary(client, client.model()), ByteVocabulary()
        assert ours.fingerprint == theirs.fingerprint
        assert (ours.pieces, ours.kinds, ours.ends) == (theirs.pieces, theirs.kinds, theirs.ends)
        for text in ("naïve \x00 日本", "", "<end>"):
            for parse_control in (False, True):
                for add_begin in (False, True):
                    given = {"add_begin": add_begin, "parse_control": parse_control}
                    assert ours.encode(text, **given) == theirs.encode(text, **given)


def test_vocabulary_with_another_fingerprint_is_refused(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        info, other = client.model(), json.loads(client.call("GET", "/vocabulary", None))
        other["pieces"] = [*other["pieces"][:-3], "x", *other["pieces"][-2:]]
        monkeypatch.setattr(client, "call", lambda *_: json.dumps(other).encode())
        with pytest.raises(BadReply, match="is not the one that it names"):
            RemoteVocabulary(client, info)


def test_model_and_vocabulary_are_requested_once(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []
    with closing(VerifierClient(verifier.url)) as client:
        ask = VerifierClient.call

        def noting(client: VerifierClient, *what: Any) -> bytes:
            requested.append(what[1])
            return ask(client, *what)

        monkeypatch.setattr(VerifierClient, "call", noting)
        with Lookup().open(client, branches=1, texts=1) as drafts:
            assert drafts.info.vocabulary == drafts.vocabulary.fingerprint
    assert requested == ["/model", "/vocabulary"]


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
