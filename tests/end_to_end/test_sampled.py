"""The text depends on the seed alone: with every strategy, processor and mode, and with random trees."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from drafter_client import Mode, Options, Pair
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry
from specpair.protocol.responses import GenerateResponse
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.drafter_client.support import Verifier, generate, options_of, running
from tests.end_to_end.conftest import CountFlips, MakeDrafter
from tests.end_to_end.prompts import PROMPTS, how
from tests.end_to_end.reference import CONTEXT, EPSILON, MAX_TOKENS, Reference, model
from tests.specpair.speculation import processed
from tests.verifier_server.engine.bench import random_tree
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow


NAMES = ("small draft", "q4 twin", "junk")
LENGTHS = ("1", "4", "auto")
COMBINATIONS = [(name, length) for name in NAMES for length in LENGTHS]


def _alone(client: VerifierClient, prompt: list[int], sampling: Sampling) -> list[int]:
    """The text of the target alone, by `/generate`."""
    *_, end = client.generate(TextSession(prompt), options_of(sampling, MAX_TOKENS))
    assert isinstance(end, GenerateResponse)
    return end.token_ids


@pytest.mark.parametrize(("name", "length"), COMBINATIONS)
def test_sampled_text_depends_on_the_seed_only(
    client: VerifierClient,
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: CountFlips,
    name: str,
    length: str,
) -> None:
    turn = COMBINATIONS.index((name, length))
    flips: list[float] = []
    written = drafted = accepted = 0
    info = client.model()
    for number, text in enumerate(PROMPTS[turn % 6 :: 6]):
        sampling = Sampling(seed=1000 * turn + number, temperature=0.8)
        prompt = reference.encode(text)
        drafter = make_drafter(name, sampling)
        options = {**how(length), **options_of(sampling, MAX_TOKENS)}
        run = generate(client, drafter, prompt=prompt, info=info, **options)
        written += len(run.tokens)
        drafted, accepted = drafted + run.stats.drafted, accepted + run.stats.accepted
        if run.tokens != _alone(client, prompt, sampling):
            flips += reference.flips(prompt, run.tokens, sampling)
            assert flips, "the pair agrees with plain decoding here, and /generate does not"
    count_flips(written, flips)
    if name != "junk" and length != "auto":
        assert accepted > 0.2 * drafted > 0  # the shared noise makes two samplers agree


TOKENS = 48


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY])
def test_exact_strategies_write_the_target_s_text(
    client: VerifierClient,
    reference: Reference,
    make_drafter: MakeDrafter,
    count_flips: CountFlips,
    strategy: Strategy,
) -> None:
    flips: list[float] = []
    written = 0
    info = client.model()
    for number, text in enumerate(PROMPTS[:4]):
        requested = Sampling(seed=number, temperature=0.8)
        sampling = effective_sampling(strategy, requested)
        prompt = reference.encode(text)
        options = {**options_of(requested, TOKENS), "strategy": str(strategy)}
        drafter = make_drafter("q4 twin", sampling)
        run = generate(client, drafter, 4, prompt, info=info, **options)
        flips += reference.flips(prompt, run.tokens, sampling)
        written += len(run.tokens)
        assert (run.stats.accepted == 0) == (strategy is Strategy.GREEDY)
    count_flips(written, flips)


def test_probabilistic_accepts_most_of_the_twin_s_draft_tokens(
    client: VerifierClient, reference: Reference, make_drafter: MakeDrafter
) -> None:
    info, prompt = client.model(), reference.encode(PROMPTS[0])
    sampling = Sampling(seed=3, temperature=0.8)
    options = {**options_of(sampling, TOKENS), "strategy": "probabilistic", "explain": True}
    first, again = (
        generate(client, make_drafter("q4 twin", sampling, draws=True), 4, prompt, info=info, **options)
        for _ in range(2)
    )
    assert first.tokens == again.tokens
    assert first.stats.accepted > 0.5 * first.stats.drafted > 0
    for each in first.stats.decisions:
        if each.verdict == "accepted":
            assert each.token == each.draft
        if each.draft is not None:
            assert each.drawn is not None and each.draft_p is not None and each.q is not None
            assert (each.verdict == "accepted") == (each.drawn < each.draft_p / each.q)


def test_threshold_0_accepts_all_and_a_high_threshold_keeps_the_target_s_text(
    client: VerifierClient, reference: Reference, make_drafter: MakeDrafter
) -> None:
    info, prompt = client.model(), reference.encode(PROMPTS[0])
    sampling = Sampling(seed=3, temperature=0.8)
    options = {**options_of(sampling, TOKENS), "strategy": "threshold"}
    loose = generate(client, make_drafter("small draft", sampling), 4, prompt, info=info, threshold=0.0, **options)
    assert loose.stats.accepted == loose.stats.drafted > 0
    # Where the target is that sure of a token, it samples another one only once in ten thousand times.
    strict = generate(client, make_drafter("small draft", sampling), 4, prompt, info=info, threshold=0.9999, **options)
    flips = reference.flips(prompt, strict.tokens, sampling)
    assert all(margin < EPSILON for margin in flips), f"differs at more than near-ties: {flips}"


COUNT = 64
SETTINGS: dict[str, dict[str, Any]] = {
    "penalties": {"temperature": 0.8, "presence_penalty": 0.6, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
    "greedy": {"repetition_penalty": 1.3, "logit_bias": {13: 2.0, 222: -100.0}},
    "min_p": {"temperature": 1.2, "min_p": 0.1, "logit_bias": {13: 1.0}},
}


@pytest.fixture(scope="module")
def target() -> Iterator[Backend]:
    with model(DEFAULT_TARGET, deterministic=True) as backend:
        yield backend


@pytest.fixture(scope="module")
def exact_verifier() -> Iterator[Verifier]:
    """Bit-identical logits whatever the batch, so that there are no near-ties."""
    drafting: dict[str, Any] = {"draft_model": DEFAULT_DRAFT, "draft_threads": 1, "draft_slots": 1}
    with running(Settings(slots=2, context=CONTEXT, threads=1, deterministic=True, **drafting)) as started:
        yield started


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_text_is_the_target_s_in_every_mode(
    exact_verifier: Verifier, target: Backend, settings: dict[str, Any]
) -> None:
    def logits_after(tokens: Sequence[int]) -> Logits:
        held = target.length(0)  # each row continues the text of the row before
        return target.extend([Entry(0, held, tokens[held:], len(tokens) - held - 1)])[0][0].copy()

    with Pair(exact_verifier.url) as pair:
        for number, text in enumerate(PROMPTS[:2]):
            prompt, options = pair.encode(text), Options(max_tokens=COUNT, seed=number, **settings)
            target.release(0)
            expected = processed.plain(logits_after, prompt, COUNT, options.sampling, target.vocabulary.ends)
            ways: dict[str, dict[str, Any]] = {
                "remote": {},
                "remote, in lockstep": {"draft_n": 3, "lockstep": True},
                "fused": {"mode": Mode.FUSED},
                "target": {"mode": Mode.TARGET},
            }
            texts = {name: pair.generate(prompt, replace(options, **how)).read() for name, how in ways.items()}
            assert {name: done.token_ids for name, done in texts.items()} == dict.fromkeys(texts, expected)
            assert texts["remote, in lockstep"].stats.accepted > 0, "overlapped, it depends on timing"
            plain = pair.generate(prompt, Options(max_tokens=COUNT, seed=number, temperature=options.temperature))
            assert plain.read().token_ids != expected


TREES_TOKENS = 60


@pytest.mark.parametrize("number", range(8))
def test_random_trees_do_not_change_the_text(
    client: VerifierClient,
    verifier: Verifier,
    reference: Reference,
    count_flips: CountFlips,
    number: int,
) -> None:
    assert client.model().trees
    sampling = Sampling(seed=number, temperature=(0.0, 0.8)[number % 2])
    prompt, written = reference.encode(PROMPTS[number]), list[int]()
    chance, side = random.Random(number), 0
    body = {"prompt_ids": prompt, **options_of(sampling, TREES_TOKENS)}
    with httpx.Client(base_url=verifier.url, timeout=60, trust_env=False) as http:
        named = {"session_id": f"tree-{number}"}
        right = http.post("/generate", json=body).json()["token_ids"]
        reply = http.post("/prefill", json=body | named).json()
        written += reply["tokens"]
        while reply["finish_reason"] is None:
            at = len(written)
            follows = right[at : at + chance.randint(0, 6)] if written == right[:at] else []
            draft = random_tree(chance, len(prompt) + at, follows, 4000, wrong=5)
            asked = {"position": draft.position, "draft_tokens": draft.ids, "draft_parents": draft.parents}
            reply = http.post("/verify", json=named | asked).json()
            written += reply["tokens"]
            path = reply.get("accepted_path") or []
            side += path != list(range(len(path)))
    assert side > 3, "paths beside the first one were accepted, too"
    flips = reference.flips(prompt, written, sampling) if written != right else []
    count_flips(len(written), flips)
