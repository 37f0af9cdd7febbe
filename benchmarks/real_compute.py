"""Both ends on this machine with real compute, against the target alone and llama-cpp-python's own speculation.

Method. Nothing is paced. The target is the default one padded until a step takes `--step-ms` here on one thread. Ours
is a verifier process and the default of `python -m drafter_client` in this one, one thread each, over loopback, with
each of the two drafters that ship. On the same held-out prompts in turn, so that a slow moment falls on all alike:

    target       the same verifier alone, streamed (`/generate`)
    library      llama-cpp-python's `Llama.generate` in this process, one thread, the same target
    lookup n     the same with its own speculative decoding, prompt lookup, drafting n tokens

The library samples with its own noise, so its texts at temperatures above 0 are others.

    python -m benchmarks.real_compute [--tokens 128] [--prompts 4] [--temperatures 0 0.8]
"""

import time
from collections.abc import Callable
from pathlib import Path

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.base import Backend
from benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter, padded_target
from benchmarks.harness.report import Report, options_of, plot
from benchmarks.harness.serving import verifier
from benchmarks.harness.texts import Written, alone, connected, paired, rate, table, timed
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import check_vocabulary
from drafters.draft_model import ModelDrafter
from speculation.sampling.sampling import Sampling

LOOKUPS = (2, 5, 10)  # 10 is the library's default, 2 what it recommends for a CPU
FLAGS = {"tokens": 128, "prompts": 4, "step-ms": 30.0, "temperatures": [0.0, 0.8]}

Run = Callable[[list[int], Sampling], Written]  # of a prompt


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("real_compute", options)
    target = padded_target(options.step_ms)
    with (
        verifier(model=target, threads=1, rows=2, context=CONTEXT) as server,
        connected(server.url) as client,
    ):
        drafts = {f"ours, {name}": load_drafter(DRAFTERS[name]) for name in ("twin", "small")}
        runs: dict[str, Run] = {
            "target": lambda prompt, sampling: alone(client, prompt, _request(sampling, options.tokens)),
            **{name: _pair(client, backend, options.tokens) for name, backend in drafts.items()},
            "library": _library(target, options.tokens, None),
            **{f"lookup {count}": _library(target, options.tokens, count) for count in LOOKUPS},
        }
        encode = next(iter(drafts.values())).vocabulary.encode
        prompts = [encode(prompt) for prompt in held_out_prompts(options.prompts)]
        multiples = {t: _compare(report, runs, prompts, t) for t in options.temperatures}
    report.save()
    _figure(multiples, report.beside(".png"))


def _compare(report: Report, runs: dict[str, Run], prompts: list[list[int]], temperature: float) -> dict[str, float]:
    """All ways at one temperature: tokens per second as multiples of the target's."""
    texts: dict[str, list[Written]] = {name: [] for name in runs}
    for seed, prompt in enumerate(prompts):
        for name, run in runs.items():
            texts[name].append(run(prompt, Sampling(seed, temperature)))
    report.line(f"\ntemperature {temperature:g}")
    for line in table(texts):
        report.line(line)
    return {name: rate(written) / rate(texts["target"]) for name, written in texts.items()}


def _request(sampling: Sampling, tokens: int) -> dict[str, float]:
    return {"max_tokens": tokens, "temperature": sampling.temperature, "seed": sampling.seed}


def _pair(client: VerifierClient, backend: Backend, tokens: int) -> Run:
    info = check_vocabulary(client, backend.vocabulary, backend.model_name)

    def run(prompt: list[int], sampling: Sampling) -> Written:
        drafter = ModelDrafter(backend, sampling, info.vocabulary.size)
        return paired(client, drafter, prompt, _request(sampling, tokens), info, lookup=True)

    return run


def _library(target: Path, tokens: int, lookup: int | None) -> Run:
    draft = None if lookup is None else LlamaPromptLookupDecoding(num_pred_tokens=lookup)
    judges = draft is not None  # by the logits of all drafts
    both = {"n_threads": 1, "n_threads_batch": 1}
    model = Llama(str(target), n_ctx=CONTEXT, draft_model=draft, logits_all=judges, verbose=False, **both)

    def run(prompt: list[int], sampling: Sampling) -> Written:
        model.set_seed(sampling.seed)
        model.reset()
        plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        began, arrived = time.perf_counter(), []
        for number, token in enumerate(model.generate(prompt, temp=sampling.temperature, **plain), 1):
            arrived.append((time.perf_counter(), [token]))
            if number == tokens or token == model.token_eos():
                break
        return timed(began, arrived)

    return run


def _figure(multiples: dict[float, dict[str, float]], path: Path) -> None:
    with plot(path, 1, len(multiples)) as axes:
        for axis, (temperature, by_name) in zip(axes[0], multiples.items(), strict=True):
            names = list(by_name)[::-1]
            colours = ["C0" if name.startswith("ours") else "C7" for name in names]
            axis.barh(names, [by_name[name] for name in names], color=colours)
            axis.axvline(1.0, color="black", linewidth=0.6)
            axis.set(title=f"temperature {temperature:g}", xlabel="tokens a second, times the target alone")


if __name__ == "__main__":
    main()
