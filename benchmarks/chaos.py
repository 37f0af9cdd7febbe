"""Texts whose verifier is killed repeatedly while they are written: each must equal the undisturbed text.

Method. A verifier process with the shipped pair behind the relay, under VERIFIER_DETERMINISTIC=1. `--texts` texts, by
turns in the modes remote, fused, target and auto, are first written undisturbed, one after the other. Then all are
written at once while the verifier is ended `--kills` times, with SIGKILL and SIGTERM, each time when so many tokens
have arrived over all texts, and started again after up to a second; all drawn from `--seed`. Exit status 1: a text was
lost or differs. With `--plain` the verifier runs without VERIFIER_DETERMINISTIC, and a text may differ from a token on
where the target prefers one of the two tokens by at most 0.05 nats.

    python -m benchmarks.chaos [--texts 8] [--kills 5] [--tokens 160] [--temperature 0.8] [--rtt-ms 5] [--seed 0]
                               [--plain]
"""

import argparse
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np

from backends.base import Entry, LoadOptions
from backends.registry import load
from benchmarks.harness.models import CONTEXT, held_out_prompts
from benchmarks.harness.relay import relay
from benchmarks.harness.report import options_of
from benchmarks.harness.serving import RestartedVerifier
from drafter_client import DraftModel, Mode, Options, Pair, Tokens
from drafter_client.metrics.statistics import Stats
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from speculation.acceptance.strategies import common_prefix
from speculation.sampling import gumbel

_DOWN = 1.0  # seconds that the verifier is away at most, beside the time that it takes to start
_NEAR_TIE = 0.05  # nats; twice the largest margin that was ever seen to flip (tests/end_to_end/reference.py)
FLAGS = {
    **{"texts": 8, "kills": 5, "tokens": 160, "temperature": 0.8, "rtt-ms": 5.0, "seed": 0},
    "threads": {"default": 1, "help": "of either end"},
    "plain": {"action": "store_true", "help": "without VERIFIER_DETERMINISTIC"},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A text to be written."""

    prompt: list[int]
    options: Options


class Chaos:
    """Ends a verifier when so many tokens have arrived, and starts it again."""

    def __init__(self, verifier: RestartedVerifier, at: Sequence[int], seed: int) -> None:
        """`at`: the numbers of tokens, ascending."""
        self._verifier, self._at = verifier, list(at)
        self._random = random.Random(seed)
        self._count = threading.Condition()
        self._tokens = 0
        self._over = False
        self.ended: list[tuple[int, str]] = []  # at how many tokens, and by which signal

    def arrived(self, tokens: int) -> None:
        """So many more tokens have arrived, of any text. May be called from any thread."""
        with self._count:
            self._tokens += tokens
            self._count.notify()

    @contextmanager
    def running(self) -> Iterator[None]:
        """End and start the verifier while the block runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="chaos") as pool:
            running = pool.submit(self._run)
            try:
                yield
            finally:
                with self._count:
                    self._over = True
                    self._count.notify()
                running.result()

    def _run(self) -> None:
        signals = [[signal.SIGKILL, signal.SIGTERM][number % 2] for number in range(len(self._at))]
        self._random.shuffle(signals)
        for at, how in zip(self._at, signals, strict=True):
            with self._count:
                self._count.wait_for(lambda at=at: self._over or self._tokens >= at)  # type: ignore[misc]
                if self._over:
                    return
                self.ended.append((self._tokens, how.name))
            self._verifier.end(how)
            time.sleep(self._random.uniform(0.0, _DOWN))
            self._verifier.start()


def write(pair: Pair, asked: Asked, arrived: Callable[[int], None] = lambda tokens: None) -> Stats:
    """Write one text; `arrived` is called with the number of tokens as they come."""
    with pair.generate(asked.prompt, asked.options) as generation:
        for event in generation:
            if isinstance(event, Tokens):
                arrived(len(event.tokens))
    return generation.stats


def main() -> None:
    options = options_of(__doc__, FLAGS)
    settings = {"rows": 2 * options.texts, "context": CONTEXT, "threads": options.threads}
    drafts = {"draft_model": DEFAULT_DRAFT, "draft_threads": options.threads}
    exact = not options.plain
    with (
        RestartedVerifier(**settings, **drafts, deterministic=exact) as verifier,
        relay(verifier.url, options.rtt_ms) as url,
    ):
        draft = DraftModel(engine=LoadOptions(threads=options.threads))
        with Pair(url, draft, texts=options.texts) as pair:
            asked = _texts(pair, options)
            undisturbed = [write(pair, each) for each in asked]
            whole = sum(stats.generated_tokens for stats in undisturbed)
            at = sorted(random.Random(options.seed).sample(range(whole // 20, whole * 9 // 10), options.kills))
            chaos = Chaos(verifier, at, options.seed)
            with chaos.running(), ThreadPoolExecutor(options.texts) as pool:
                disturbed = list(pool.map(lambda each: write(pair, each, chaos.arrived), asked))
    print("ended: " + ", ".join(f"{how} at token {tokens}" for tokens, how in chaos.ended) + f" of {whole}")
    equal = near_ties = 0
    for each, before, after in zip(asked, undisturbed, disturbed, strict=True):
        same = common_prefix(before.token_ids, after.token_ids)
        margin = _margin(each, before.token_ids, after.token_ids, same)
        equal += margin is None
        near_ties += margin is not None and margin <= _NEAR_TIE
        apart = "" if margin is None else f", margin {margin:.4f}"
        print(
            f"{each.options.mode:7} {same} of {len(before.token_ids)} tokens equal, resumed at {after.resumed}{apart}"
        )
    resumed = sum(bool(stats.resumed) for stats in disturbed)
    print(f"{equal} of {len(asked)} texts equal, {near_ties} differ at a near-tie; {resumed} were resumed")
    well = equal + (0 if exact else near_ties) == len(asked)
    sys.exit(0 if well and len(chaos.ended) == options.kills else 1)


def _margin(asked: Asked, before: list[int], after: list[int], same: int) -> float | None:
    """By how many nats the target prefers one token to the other where two texts part; None: they are equal."""
    if before == after:
        return None
    if same == min(len(before), len(after)):  # one is only the beginning of the other
        return math.inf
    tokens = [*asked.prompt, *before[:same]]
    options = LoadOptions(model=DEFAULT_TARGET, slots=1, context_length=len(tokens) + 1, threads=1, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        scores = backend.extend([Entry(0, 0, tokens, len(tokens) - 1)])[0][0].astype(np.float64)
    sampling = asked.options.sampling
    if not sampling.greedy:
        key = gumbel.row_key(sampling.seed, len(tokens))
        scores = scores / sampling.temperature + gumbel.gumbel(key, np.arange(len(scores)))
    return abs(float(scores[before[same]] - scores[after[same]]))


def _texts(pair: Pair, options: argparse.Namespace) -> list[Asked]:
    modes, prompts = [*pair.modes, Mode.AUTO], held_out_prompts(options.texts)
    asked = []
    for number in range(options.texts):
        temperature = options.temperature if number % 8 < 4 else 0.0
        how = {"max_tokens": options.tokens, "temperature": temperature, "seed": number}
        chosen = Options(mode=modes[number % len(modes)], **how)  # type: ignore[arg-type]
        asked.append(Asked(pair.encode(prompts[number % len(prompts)]), chosen))
    return asked


if __name__ == "__main__":
    main()
