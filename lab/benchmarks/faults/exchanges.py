"""Real verifier and drafter over a hostile network in virtual time: texts by the library, streams by OpenAI's API.

The library resumes its texts: each has to be the target's own, token by token. A plain client of the endpoint cannot:
it asks again, until a whole text comes; what it had of each stream has to be the beginning of that text. Where another
model takes the address, a text that was begun ends with ModelChanged, and the next one is the new model's.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from unittest.mock import patch

import httpx

from backends.scripted import END, Script
from drafter_client import DraftModel, Lookup, Mode, Options, Pair, Tokens
from drafter_client import pair as library
from drafter_client.errors import ModelChanged
from drafter_client.generation.generation import Finished
from drafter_client.http import retries
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages
from lab.benchmarks.faults.checks import NO_END, completion
from lab.benchmarks.faults.hostile import URL, Address
from lab.benchmarks.faults.virtual_verifier import Clock
from specpair.protocol.errors import EngineError
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.specpair.speculation.policy.virtual_pair import Toy

SOURCES = (None, Lookup(), DraftModel(Path("1"), "scripted"))
PROMPTS = ("", "a", "def f(x):", "one two one two one")
_ASKED_AGAIN = 100  # times at most


@lru_cache(256)
def expected(script: Script, prompt: tuple[int, ...], count: int, sampling: Sampling) -> list[int]:
    """The text of the target alone."""
    return plain(Toy(script), prompt, count, sampling)


def run(seed: int) -> str:
    """Run the world of a seed, and check it. Returns what happened, the same each time."""
    rng, address, texts = random.Random(f"{seed} texts"), Address(seed), 0
    with closing(address), _in_virtual_time(address.clock):
        source = rng.choice(SOURCES)
        with Pair(URL, source, transport=address, clock=address.clock.time, on_notice=lambda _: None) as pair:
            address.begin()
            for _ in range(rng.randint(1, 4)):
                if rng.random() < 0.25:
                    texts += _stream(rng, address)
                else:
                    texts += _text(rng, address, pair, source is not None)
        address.settle()
        return f"{address.clock.now:.6f} s, {texts} tokens, {'; '.join(address.events)}"


@contextmanager
def _in_virtual_time(clock: Clock) -> Iterator[None]:
    """Make the library's connections use this clock and wait for nothing else."""
    client, outages = partial(VerifierClient, clock=clock.time), partial(Outages, clock=clock.time)
    with (
        patch.multiple(retries, CHECK_PAUSE=0.0, FIRST_PAUSE=0.0, LONGEST_PAUSE=0.0),
        patch.multiple(library, VerifierClient=client, Outages=outages),
    ):
        yield


def _options(rng: random.Random, drafts: bool) -> Options:
    remote = drafts and rng.random() < 0.5
    return Options(
        max_tokens=rng.choice([1, rng.randint(2, 60), rng.randint(60, 120)]),
        temperature=rng.choice([0.0, 0.8]),
        seed=rng.randrange(100),
        mode=Mode.REMOTE if remote else Mode.TARGET,
        # In lockstep one request follows another, and in one thread: nothing but the seed decides their order.
        lockstep=remote,
        draft_n=rng.randint(0, 8) if remote else None,
        lookup=rng.random() < 0.5,
    )


def _text(rng: random.Random, address: Address, pair: Pair, drafts: bool) -> int:
    """Write a text with the library. Returns the number of its tokens."""
    options, tokens, finished = _options(rng, drafts), list[int](), None
    failures = address.engine_failures
    generation = pair.generate(rng.choice(PROMPTS), options)
    prompt = tuple(generation.prompt_ids)
    error: Exception | None = None
    try:
        for event in generation:
            if isinstance(event, Tokens):
                at = len(prompt) + len(tokens)
                assert event.position == at, f"tokens from {event.position} on came where {at} is due"
                tokens += [token.id for token in event.tokens]
            else:
                finished = event
    except (EngineError, ModelChanged) as caught:
        error = caught
    one_of = {
        f"scripted-{each.seed}": expected(each, prompt, options.max_tokens, options.sampling) for each in address.models
    }
    if error is None:
        assert isinstance(finished, Finished) and finished.token_ids == tokens
        own = one_of[str(generation.stats.model)]
        assert tokens == own, f"{tokens} is not the text of {generation.stats.model}: {own}"
        assert finished.finish_reason == ("stop" if tokens[-1] == END else "length")
        return len(tokens)
    happened = address.engine_failures > failures if isinstance(error, EngineError) else len(one_of) > 1
    assert happened, f"without a reason: {error!r}"
    assert any(tokens == each[: len(tokens)] for each in one_of.values()), f"{tokens} begins none of {one_of}"
    return len(tokens)


def _stream(rng: random.Random, address: Address) -> int:
    """Stream a text from OpenAI's endpoint, until a complete text comes. Returns the number of received bytes."""
    prompt, options = rng.choice(PROMPTS[1:]), _options(rng, drafts=False)
    body = {"prompt": prompt, "max_tokens": options.max_tokens, "temperature": options.temperature}
    request = httpx.Request("POST", f"{URL}/v1/completions", json=body | {"seed": options.seed, "stream": True})
    ids = tuple(Toy(Script()).vocabulary.encode(prompt))
    for _ in range(_ASKED_AGAIN):
        text = ""
        why: str | None = "refused"
        with suppress(httpx.TransportError), closing(address.handle_request(request)) as response:
            if response.status_code == 200:
                text, why = completion(response.iter_lines())
        one_of = [_shown(expected(each, ids, options.max_tokens, options.sampling)) for each in address.models]
        assert why != NO_END, f"after {text!r}: {why}"
        if why is None:
            assert text in one_of, f"{text!r} is the text of none of {one_of}"
            return len(text)
        assert any(each.startswith(text) for each in one_of), f"{text!r} begins none of {one_of}"
    raise AssertionError(f"no stream came to its end in {_ASKED_AGAIN} attempts")


def _shown(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token != END).decode(errors="replace")
