"""Writes texts through a verifier, by its target alone or by the pair, and times both in the same way."""

import random
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from drafter_client import Options, Pair, Tokens
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.resuming import released
from drafter_client.generation.speculative_decoding import SpeculativeRun
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from drafter_client.statistics import Stats
from specpair.drafters.base import Drafter
from specpair.protocol.responses import GenerateTokensEvent
from specpair.protocol.service_responses import ModelInfo

Prompt = TypeVar("Prompt")


@dataclass(frozen=True)
class Written:
    """One text by one method. A token's time ends when this process has the token."""

    tokens: list[int]
    ttft_ms: float  # time to the first token: the prompt
    seconds: float  # from the first token to the last
    stats: Stats = field(default_factory=Stats)
    lost: float = 0.0  # share of the time in which the machine stood still

    @property
    def rate(self) -> float:
        """Tokens per second behind the first token."""
        return rate([self])


Way = Callable[[Prompt, int], Written]  # writes what follows a prompt; the number is the seed


def rate(texts: Iterable[Written]) -> float:
    """Tokens per second over all texts, without each text's first token."""
    texts = list(texts)
    return sum(len(text.tokens) - 1 for text in texts) / sum(text.seconds for text in texts)


def whole_rate(texts: Iterable[Written]) -> float:
    """Tokens per second over all texts, including the prompts' time."""
    texts = list(texts)
    return sum(len(text.tokens) for text in texts) / sum(text.ttft_ms / 1e3 + text.seconds for text in texts)


def timed(began: float, arrived: Sequence[tuple[float, Sequence[int]]], stats: Stats | None = None) -> Written:
    """The text whose tokens arrived at these moments."""
    tokens = [token for _, some in arrived for token in some]
    first, last = arrived[0][0], arrived[-1][0]
    return Written(tokens, 1e3 * (first - began), last - first, stats or Stats())


def alone(client: VerifierClient, prompt: list[int], request: dict[str, Any]) -> Written:
    """The target alone (`/generate`), streamed. `request`: max_tokens, temperature, seed."""
    request = _cold(request)
    began = time.perf_counter()
    with released(client, TextSession(prompt)) as text:
        events = client.generate(text, request)
        arrived = [(time.perf_counter(), each.tokens) for each in events if isinstance(each, GenerateTokensEvent)]
    return timed(began, arrived)


def paired(
    client: VerifierClient, drafter: Drafter, prompt: list[int], request: dict[str, Any], info: ModelInfo, **how: Any
) -> Written:
    """The pair, in mode remote. `how`: further options, and the keyword arguments of `SpeculativeRun`."""
    given = {name: how.pop(name) for name in ("draft_n", "lookup") if name in how}
    chosen = Options(**_cold(request) | {"lookup": False} | given)
    stats, began = Stats(), time.perf_counter()
    with released(client, TextSession(prompt)) as text:
        run = SpeculativeRun(
            client=client,
            drafter=drafter,
            text=text,
            options=chosen,
            info=info,
            tell=StatsCounter(stats).take,
            clock=time.perf_counter,
            **how,
        )
        arrived = [(time.perf_counter(), [token for token, _ in committed.tokens]) for committed in run.tokens()]
    return timed(began, arrived, stats)


def _cold(request: dict[str, Any]) -> dict[str, Any]:
    """`request` with a salt of its own, as `Options.cold`."""
    return request | {"cache_salt": secrets.token_hex(16)}


def by_library(pair: Pair, prompt: str | Sequence[int], options: Options) -> Written:
    """The text that a program gets from the library, in any mode. Times end when the program has the tokens."""
    began = time.perf_counter()
    generation = pair.generate(prompt, options)
    arrived = [
        (time.perf_counter(), [token.id for token in event.tokens]) for event in generation if isinstance(event, Tokens)
    ]
    return timed(began, arrived, generation.stats)


def by_turns(ways: Mapping[str, Way[Prompt]], prompts: Iterable[Prompt]) -> dict[str, list[Written]]:
    """Write each prompt in each way, in another order for each: a slow moment of the machine falls on all ways alike.

    A way gets the prompt and the text's seed: the prompt's number.
    """
    written: dict[str, list[Written]] = {way: [] for way in ways}
    for number, prompt in enumerate(prompts):
        for way in random.Random(number).sample(list(ways), len(ways)):
            written[way].append(ways[way](prompt, number))
    return written


@contextmanager
def connected(url: str) -> Iterator[VerifierClient]:
    """A client of a ready verifier. The process switches threads as the drafter's program does."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    with closing(VerifierClient(url)) as client:
        client.wait_until_ready()
        yield client
