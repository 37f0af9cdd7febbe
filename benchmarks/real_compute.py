"""Both ends on this machine with real compute, against the target alone and llama-cpp-python's own speculation.

Method. Nothing is paced. The target is the default one padded until a step costs `--step-ms` here on one thread
(`benchmarks.harness.padded_target`). Ours: a verifier in its own process, one thread, and the default of
`python -m drafter_client` in this one, one thread, over loopback HTTP, with each of the two drafters that ship. Against
it, on the same prompts in turn, so that a slow moment of the machine falls on all alike:

    target       the same verifier alone, streamed (`/generate`)
    library      llama-cpp-python's `Llama.generate` in this process, one thread, the same target
    lookup n     the same with its own speculative decoding, prompt lookup, drafting n tokens

Prompts come of files that no model here was trained on. Rates are of all tokens behind each text's first over all
their seconds; the multiples are of `target`. The library samples with its own noise, so at temperatures above 0 its
texts are others.

    python -m benchmarks.real_compute [--tokens 128] [--prompts 4] [--temperatures 0 0.8]
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.base import Backend
from benchmarks.drafters import CONTEXT, load_drafter
from benchmarks.extras import need
from benchmarks.harness import held_out_prompts, padded_target, verifier
from benchmarks.report import Report, add_save, plot
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation.resuming import released
from drafter_client.generation.start import speculate
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import Stats
from drafters.draft_model import ModelDrafter
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from speculation.sampling.sampling import Sampling

DRAFTERS = {"ours, twin": DEFAULT_TWIN, "ours, small": DEFAULT_DRAFT}
LOOKUPS = (2, 5, 10)  # 10 is the library's default, 2 what it recommends for a CPU

Run = Callable[[list[int], float, int], Iterator[int]]  # prompt, temperature, seed: tokens as they come


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=30.0)
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.8])
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    sys.setswitchinterval(SWITCH_INTERVAL)
    report = Report("real_compute", options)
    target = padded_target(options.step_ms)
    with (
        verifier(model=target, threads=1, rows=2, context=CONTEXT) as server,
        closing(VerifierClient(server.url)) as ours,
    ):
        ours.wait_until_ready()
        drafts = {name: load_drafter(path) for name, path in DRAFTERS.items()}
        encode = next(iter(drafts.values())).vocabulary.encode
        runs: dict[str, Run] = {"target": lambda *text: _alone(ours, options.tokens, *text)}
        for name, backend in drafts.items():
            runs[name] = _pair(ours, backend, options.tokens)
        runs["library"] = _library(target, options.tokens, None)
        runs |= {f"lookup {count}": _library(target, options.tokens, count) for count in LOOKUPS}
        prompts = [encode(prompt) for prompt in held_out_prompts(options.prompts)]
        multiples = {t: _compare(report, runs, prompts, t) for t in options.temperatures}
    report.save()
    _figure(multiples, report.beside(".png"))


def _compare(report: Report, runs: dict[str, Run], prompts: list[list[int]], temperature: float) -> dict[str, float]:
    """All ways at one temperature: tokens per second as multiples of the target's."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    texts: dict[str, list[list[int]]] = defaultdict(list)
    for seed, prompt in enumerate(prompts):
        for name, run in runs.items():
            tokens, moments = [], []
            for token in run(prompt, temperature, seed):
                tokens.append(token)
                moments.append(time.perf_counter())
            counts[name] += len(tokens) - 1
            seconds[name] += moments[-1] - moments[0]
            texts[name].append(tokens)
    rates = {name: counts[name] / seconds[name] for name in runs}
    report.line(f"\ntemperature {temperature:g}")
    for name, rate in rates.items():
        same = sum(text == other for text, other in zip(texts[name], texts["target"], strict=True))
        report.line(
            f"  {name:>12}  {rate:6.1f} tokens/s  {rate / rates['target']:.2f}x target"
            f"  {same} of {len(prompts)} texts are the target's"
        )
    return {name: rate / rates["target"] for name, rate in rates.items()}


def _request(tokens: int, temperature: float, seed: int) -> dict[str, Any]:
    return {"max_tokens": tokens, "temperature": temperature, "seed": seed}


def _alone(client: VerifierClient, tokens: int, prompt: list[int], temperature: float, seed: int) -> Iterator[int]:
    with released(client, TextSession(prompt)) as text:
        for name, data in client.generate(text, _request(tokens, temperature, seed)):
            if name == "tokens":
                yield from data["tokens"]


def _pair(client: VerifierClient, backend: Backend, count: int) -> Run:
    def run(prompt: list[int], temperature: float, seed: int) -> Iterator[int]:
        info = client.check_vocabulary(backend.vocabulary, backend.model_name)
        drafter = ModelDrafter(backend, Sampling(seed, temperature), info.vocabulary.size)
        request = _request(count, temperature, seed)
        with released(client, TextSession(prompt)) as text:
            for committed in speculate(client, drafter, text, request, info, Stats(), time.perf_counter, lookup=True):
                yield from (token for token, _ in committed.tokens)

    return run


def _library(target: Path, count: int, lookup: int | None) -> Run:
    draft = None if lookup is None else LlamaPromptLookupDecoding(num_pred_tokens=lookup)
    model = Llama(
        str(target),
        n_ctx=CONTEXT,
        n_threads=1,
        n_threads_batch=1,
        draft_model=draft,
        logits_all=draft is not None,  # it judges drafts by the logits of all of them
        verbose=False,
    )

    def run(prompt: list[int], temperature: float, seed: int) -> Iterator[int]:
        model.set_seed(seed)
        model.reset()
        plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        for number, token in enumerate(model.generate(prompt, temp=temperature, **plain), 1):
            yield token
            if number == count or token == model.token_eos():
                return

    return run


def _figure(multiples: dict[float, dict[str, float]], path: Path) -> None:
    with plot(path, 1, len(multiples)) as axes:
        for axis, (temperature, by_name) in zip(axes[0], multiples.items(), strict=True):
            names = list(by_name)
            colours = ["C0" if name.startswith("ours") else "C7" for name in names]
            axis.barh(names[::-1], [by_name[name] for name in names][::-1], color=colours[::-1])
            axis.axvline(1.0, color="black", linewidth=0.6)
            axis.set(title=f"temperature {temperature:g}", xlabel="tokens a second, times the target alone")


if __name__ == "__main__":
    main()
