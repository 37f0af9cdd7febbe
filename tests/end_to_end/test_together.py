"""Several clients of one verifier, and the drafter as a command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from models import DEFAULT_DRAFT
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference, ends_where_it_should, model
from tests.forking import started
from verifier_server.settings import Settings

COUNT = 48


def test_two_drafters_sharing_one_slot_get_the_target_s_text(
    reference: Reference, count_flips: Callable[[int, list[float]], None]
) -> None:
    sampling = Sampling(seed=5, temperature=0.8)

    def write(url: str, texts: tuple[str, ...]) -> list[tuple[list[int], list[int]]]:
        written = []
        with closing(VerifierClient(url)) as client, model(DEFAULT_DRAFT) as backend:
            for text in texts:
                prompt = backend.vocabulary.encode(text)
                drafter = ModelDrafter(backend, sampling)
                run = generate(client, drafter, 4, prompt, info=client.model(), **options_of(sampling, COUNT))
                written.append((prompt, run.tokens))
        return written

    with running(Settings(slots=1, context=CONTEXT, threads=1)) as verifier, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(write, verifier.url, PROMPTS[part : part + 3]) for part in (0, 3)]
        written = [pair for each in both for pair in each.result()]
        assert verifier.sessions == 0
    flips = [margin for prompt, tokens in written for margin in reference.flips(prompt, tokens, sampling)]
    count_flips(sum(len(tokens) for _, tokens in written), flips)
    assert len(written) == 6 and all(ends_where_it_should(reference, tokens, COUNT) for _, tokens in written)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"


def test_evicted_session_continues_unchanged(
    reference: Reference,
) -> None:
    prompts = [reference.encode(text) for text in PROMPTS[:2]]
    one_slot = Settings(slots=1, context=CONTEXT, threads=1)
    with running(one_slot) as verifier, closing(VerifierClient(verifier.url)) as client:
        opened = [client.prefill(TextSession(prompt), {"max_tokens": 20}) for prompt in prompts]
        texts = [list(one.tokens) for one in opened]
        for _ in range(6):  # the sessions alternate, so that each request finds the slot taken by the other
            for one, prompt, text in zip(opened, prompts, texts, strict=True):
                text += client.verify(one.session_id, Draft.chain(len(prompt) + len(text), [])).tokens
        assert sum(map(verifier.service.engine.is_resident, verifier.service.sessions.all())) == 1
    for prompt, text in zip(prompts, texts, strict=True):
        assert len(text) == 7 and all(margin < EPSILON for margin in reference.flips(prompt, text))


def test_drafter_command_writes_the_target_s_text(verifier: Verifier, reference: Reference) -> None:
    command = [sys.executable, "-m", "drafter_client", "--verifier", verifier.url, "--prompt", PROMPTS[1]]
    command += ["--max-tokens", str(COUNT), "--mode", "remote", "--threads", "1", "--json", "--baseline"]
    sessions = verifier.sessions  # of other clients, whose sessions have not expired yet
    process = started(command, os.environ, subprocess.PIPE)
    printed, errors = process.communicate(timeout=120)
    assert (process.wait(), errors) == (0, "")
    assert printed.count("\n") == 1
    report = json.loads(printed)
    tokens = report["token_ids"]
    assert all(margin < EPSILON for margin in reference.flips(reference.encode(PROMPTS[1]), tokens))
    assert report["text"] == reference.backend.vocabulary.decode(tokens).decode(errors="replace")
    assert report["baseline"]["same_tokens"] is True
    assert (report["generated_tokens"], report["finish_reason"]) == (COUNT, "length")
    assert report["draft_model"] == DEFAULT_DRAFT.stem
    assert verifier.sessions == sessions
