"""Both ends as they ship, over a hostile network in virtual time: the library's texts, and OpenAI's streams.

The library resumes its texts: each has to be the target's own, token by token. A plain client of the endpoint cannot:
it asks again, until a whole text comes; what it had of each stream has to be the beginning of that text. Where another
model takes the address, a text that was begun ends with ModelChanged, and the next one is the new model's.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
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
from lab.benchmarks.faults.hostile import URL, Address
from lab.benchmarks.faults.whole_verifier import Clock
from specpair.protocol.errors import EngineError
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.specpair.speculation.policy.virtual_pair import Toy

SOURCES = (None, Lookup(), DraftModel(Path("1"), "scripted"))
PROMPTS = ("", "a", "def f(x):", "one two one two one")
_ASKED_AGAIN = 100  # times at most


@lru_cache(256)
def expected(script: Script, prompt: tuple[int, ...], count: int, sampling: Sampling) -> list[int]:
    """The target's own text."""
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
    """Have the library's connections read this clock, and wait for nothing else."""
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
    """Have the library write a text. Returns how many tokens came."""
    options, tokens, finished = _options(rng, drafts), list[int](), None
    failures, models = address.engine_failures, len(address.models)
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
    one_of = [expected(each, prompt, options.max_tokens, options.sampling) for each in address.models]
    if error is None:
        assert isinstance(finished, Finished) and finished.token_ids == tokens
        assert tokens in one_of, f"{tokens} is the text of none of {one_of}"
        assert finished.finish_reason == ("stop" if tokens[-1] == END else "length")
        name = generation.stats.model
        assert one_of[[f"scripted-{each.seed}" for each in address.models].index(str(name))] == tokens, name
        return len(tokens)
    happened = address.engine_failures > failures if isinstance(error, EngineError) else len(address.models) > 1
    assert happened, f"without a reason: {error!r} (of {models} models)"
    assert any(tokens == each[: len(tokens)] for each in one_of), f"{tokens} begins none of {one_of}"
    return len(tokens)


def _stream(rng: random.Random, address: Address) -> int:
    """Stream a text from OpenAI's endpoint, again and again until a whole one comes. Returns how many bytes came."""
    prompt, options = rng.choice(PROMPTS[1:]), _options(rng, drafts=False)
    body = {"prompt": prompt, "max_tokens": options.max_tokens, "temperature": options.temperature}
    body |= {"seed": options.seed, "stream": True}
    ids = Toy(Script()).vocabulary.encode(prompt)
    for _ in range(_ASKED_AGAIN):
        text, ended = _one_stream(address, body)
        one_of = [_shown(expected(each, tuple(ids), options.max_tokens, options.sampling)) for each in address.models]
        if ended:
            assert text in one_of, f"{text!r} is the text of none of {one_of}"
            return len(text)
        assert any(each.startswith(text) for each in one_of), f"{text!r} begins none of {one_of}"
    raise AssertionError(f"no stream came to its end in {_ASKED_AGAIN} attempts")


def _shown(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token != END).decode(errors="replace")


def _one_stream(address: Address, body: dict[str, object]) -> tuple[str, bool]:
    """The text that came, and whether it ended."""
    request = httpx.Request("POST", f"{URL}/v1/completions", json=body)
    text, rest, ended = "", b"", False
    try:
        response = address.handle_request(request)
        with closing(response):
            if response.status_code != 200:
                response.read()
                return "", False
            for part in response.iter_bytes():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line == b"data: [DONE]":
                        return text, ended
                    if not line.startswith(b"data: "):
                        continue
                    event = json.loads(line[6:])
                    if "error" in event:
                        return text, False
                    for choice in event["choices"]:
                        text += choice["text"]
                        ended = ended or choice["finish_reason"] is not None
    except httpx.TransportError:
        return text, False
    raise AssertionError(f"the stream ended without [DONE], after {text!r}")
