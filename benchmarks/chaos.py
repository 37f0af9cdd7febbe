"""Texts whose verifier is killed again and again while they are written: each is to be the undisturbed one.

Method. A verifier process with the shipped pair (a target and, for mode fused, a draft model) behind the link relay
(`benchmarks.relay`). `--texts` texts of `--tokens` tokens, by turns in the modes remote, fused, target and auto, are
first written undisturbed, one after the other. Then all of them are written at once while the verifier is ended
`--kills` times, with SIGKILL and SIGTERM, and started again after up to a second: each time when so many tokens have
arrived here over all texts. Signals, moments and pauses are drawn from `--seed`. At last each text is compared with
itself undisturbed.

The verifier runs with VERIFIER_DETERMINISTIC=1, and then all must be equal; with `--plain` it runs as it is by default,
where the width of a pass may decide a near-tie. There texts that differ are counted, with the token at which they do
and the margin by which the target preferred one to the other there, in nats. The exit status is 1 where a text was
lost, or differs under VERIFIER_DETERMINISTIC, or by a margin of more than 0.05.

    python -m benchmarks.chaos [--texts 8] [--kills 5] [--tokens 160] [--temperature 0.8] [--rtt-ms 5] [--seed 0]
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
from benchmarks.harness import held_out_prompts
from benchmarks.relay import Link, relay
from benchmarks.restarts import RestartedVerifier
from drafter_client import DraftModel, Mode, Options, Outage, Pair, Tokens
from drafter_client.metrics.statistics import Stats
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from speculation.acceptance.strategies import common_prefix
from speculation.sampling import gumbel

EPSILON = 0.05  # nats; twice the largest margin that was ever seen to flip (tests/end_to_end/reference.py)
_DOWN = 1.0  # seconds that the verifier is away at most, beside the time that it takes to start


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
        """So many more, of any text. From any thread."""
        with self._count:
            self._tokens += tokens
            self._count.notify()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """While the block runs."""
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
                tokens = self._tokens
            self.ended.append((tokens, how.name))
            self._verifier.end(how)
            time.sleep(self._random.uniform(0.0, _DOWN))
            self._verifier.start()


def write(pair: Pair, asked: Asked, arrived: Callable[[int], None] = lambda tokens: None) -> Stats:
    """One text; `arrived` is told of tokens as they come."""
    with pair.generate(asked.prompt, asked.options) as generation:
        for event in generation:
            if isinstance(event, Tokens):
                arrived(len(event.tokens))
    return generation.stats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--rtt-ms", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of either end")
    parser.add_argument("--plain", action="store_true", help="without VERIFIER_DETERMINISTIC")
    options = parser.parse_args()
    settings = {"rows": 2 * options.texts, "context": 1024, "threads": options.threads, "draft_model": DEFAULT_DRAFT}
    with (
        RestartedVerifier(**settings, draft_threads=options.threads, deterministic=not options.plain) as verifier,
        relay(verifier.url, Link(rtt_ms=options.rtt_ms)) as url,
    ):
        draft = DraftModel(engine=LoadOptions(threads=options.threads))
        with Pair(url, draft, texts=options.texts, on_outage=_say()) as pair:
            asked = _texts(pair, options)
            undisturbed = [write(pair, each) for each in asked]
            whole = sum(stats.generated_tokens for stats in undisturbed)
            drawn = random.Random(options.seed)
            at = sorted(drawn.sample(range(whole // 20, whole * 9 // 10), options.kills))
            chaos = Chaos(verifier, at, options.seed)
            with chaos.going_on(), ThreadPoolExecutor(options.texts) as pool:
                disturbed = list(pool.map(lambda each: write(pair, each, chaos.arrived), asked))
    print("ended: " + ", ".join(f"{how} at token {tokens}" for tokens, how in chaos.ended) + f" of {whole}")
    sys.exit(0 if _told(asked, undisturbed, disturbed, options.plain) and len(chaos.ended) == options.kills else 1)


def _texts(pair: Pair, options: argparse.Namespace) -> list[Asked]:
    modes = [*pair.modes, Mode.AUTO]
    prompts = held_out_prompts(options.texts)
    return [
        Asked(
            pair.encode(prompts[number % len(prompts)]),
            Options(
                max_tokens=options.tokens,
                temperature=options.temperature if number % 8 < 4 else 0.0,
                seed=number,
                mode=modes[number % len(modes)],
            ),
        )
        for number in range(options.texts)
    ]


def _told(asked: Sequence[Asked], undisturbed: Sequence[Stats], disturbed: Sequence[Stats], plain: bool) -> bool:
    """Print what came of each text; whether all is well."""
    equal = near_ties = 0
    print(f"{'text':>4}  {'mode':7} {'T':>3}  {'tokens':>6}  {'taken up at':24}  text")
    for number, (each, before, after) in enumerate(zip(asked, undisturbed, disturbed, strict=True)):
        same = common_prefix(before.token_ids, after.token_ids)
        said = "equal"
        if before.token_ids == after.token_ids:
            equal += 1
        else:
            margin = _margin(each, before.token_ids, after.token_ids, same)
            near_ties += margin <= EPSILON
            said = f"differs from token {same} on, margin {margin:.4f}"
        resumed = ", ".join(map(str, after.resumed)) or "-"
        heat = each.options.temperature
        print(f"{number:4}  {each.options.mode:7} {heat:3g}  {after.generated_tokens:6}  {resumed:24}  {said}")
    taken_up = sum(bool(stats.resumed) for stats in disturbed)
    print(f"{equal} of {len(asked)} texts equal, {near_ties} differ at a near-tie; {taken_up} were taken up again")
    return equal == len(asked) or (plain and equal + near_ties == len(asked))


def _margin(asked: Asked, before: list[int], after: list[int], same: int) -> float:
    """By how much the target prefers one text's token to the other's where they part, in nats."""
    if same == min(len(before), len(after)):  # one is only the beginning of the other
        return math.inf
    tokens = [*asked.prompt, *before[:same]]
    options = LoadOptions(model=DEFAULT_TARGET, rows=1, context_length=len(tokens) + 1, threads=1, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        scores = backend.extend([Entry(0, 0, tokens, len(tokens) - 1)])[0][0].astype(np.float64)
    sampling = asked.options.sampling
    if not sampling.greedy:
        ids = np.arange(len(scores))
        scores = scores / sampling.temperature + gumbel.gumbel(gumbel.row_key(sampling.seed, len(tokens)), ids)
    return abs(float(scores[before[same]] - scores[after[same]]))


def _say() -> Callable[[Outage], None]:
    def say(outage: Outage) -> None:
        print(f"  waiting ({outage.why}) … {outage.seconds:.0f} s", file=sys.stderr)

    return say


if __name__ == "__main__":
    main()
