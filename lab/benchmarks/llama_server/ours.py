"""Our side: a verifier process, and a pair for each draft model in this process, as a program of a user has them."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from backends.registry import load
from drafter_client import DraftModel, Mode, Options, Pair, Tokens
from drafter_client.cli.program import SWITCH_INTERVAL
from lab.benchmarks.harness.models import CONTEXT
from lab.benchmarks.harness.texts import Written, timed
from specpair.child_processes.serving import verifier
from specpair.engines.backend import Entry
from specpair.engines.load_options import STORED, LoadOptions


@contextmanager
def pairs(target: Path, drafters: Mapping[str, Path], *, deterministic: bool = False) -> Iterator[dict[str, Pair]]:
    """A pair for each draft model, by its name, with one verifier. One thread at each end, and the files' own weights,
    which llama-server has; else the defaults."""
    sys.setswitchinterval(SWITCH_INTERVAL)  # as the drafter's program does
    engine = LoadOptions(context_length=CONTEXT, threads=1)
    server = verifier(model=target, threads=1, slots=2, context=CONTEXT, deterministic=deterministic)
    with server as running, ExitStack() as stack:
        yield {
            name: stack.enter_context(Pair(running.url, DraftModel(path, engine=engine, weights=STORED)))
            for name, path in drafters.items()
        }


def write(pair: Pair, mode: Mode, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    """The text that follows a prompt. Times end when a program that reads the text has the tokens."""
    began = time.perf_counter()
    wanted = Options(max_tokens=tokens, temperature=temperature, seed=seed, mode=mode)
    generation = pair.generate(prompt, wanted.cold())
    arrived = [
        (time.perf_counter(), [token.id for token in event.tokens]) for event in generation if isinstance(event, Tokens)
    ]
    return timed(began, arrived, generation.stats)


def margins(target: Path, texts: list[list[int]]) -> list[float]:
    """By how much the likeliest token's logit behind each text exceeds the second, in one pass of one thread."""
    options = LoadOptions(model=target, slots=1, context_length=CONTEXT, batch_tokens=CONTEXT, threads=1)
    with closing(load("llama_cpp", options)) as backend:
        found = []
        for text in texts:
            second, first = sorted(backend.extend([Entry(0, 0, text, len(text) - 1)])[0][0])[-2:]
            found.append(float(first - second))
        return found
