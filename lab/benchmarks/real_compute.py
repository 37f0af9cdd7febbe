"""Both ends on this machine with real compute, against the target alone and llama-cpp-python's own speculation.

Method. Nothing is paced. The target is the default one padded until a step takes `--step-ms` here on one thread. Ours
is a verifier process and the default of `python -m drafter_client` in this one, one thread each, over loopback, with
each of the two drafters that ship. On the same held-out prompts by turns, so that a slow moment falls on all alike:

    target       the same verifier alone, streamed (`/generate`)
    library      llama-cpp-python's `Llama.generate` in this process, one thread, the same target
    lookup n     the same with its own speculative decoding, prompt lookup, drafting n tokens

The library samples with its own noise, so its texts at temperatures above 0 are others.

    python -m lab.benchmarks.real_compute [--tokens 128] [--prompts 4] [--temperatures 0 0.8]
"""

import time
from functools import partial
from pathlib import Path

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from drafter_client.http.remote_vocabulary import check_vocabulary
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from lab.benchmarks.harness.report import Report, options_of, plot
from lab.benchmarks.harness.texts import Way, Writer, Written, by_turns, connected, rate, table, timed
from lab.simulator.paced.padded_target import padded_target
from specpair.child_processes.serving import verifier

LOOKUPS = (2, 5, 10)  # 10 is the library's default, 2 what it recommends for a CPU
FLAGS = {"tokens": 128, "prompts": 4, "step-ms": 30.0, "temperatures": [0.0, 0.8]}


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("real_compute", options)
    target = padded_target(options.step_ms)
    multiples = {}
    with verifier(model=target, threads=1, slots=2, context=CONTEXT) as server, connected(server.url) as client:
        models = {f"ours, {name}": load_drafter(DRAFTERS[name]) for name in ("twin", "small")}
        infos = {name: check_vocabulary(client, each.vocabulary, each.model_name) for name, each in models.items()}
        libraries = {"library": _library(target, None)} | {f"lookup {n}": _library(target, n) for n in LOOKUPS}
        encode = next(iter(models.values())).vocabulary.encode
        prompts = [encode(prompt) for prompt in held_out_prompts(options.prompts)]
        for temperature in options.temperatures:
            writer = Writer(client, options.tokens, temperature)
            ways: dict[str, Way[list[int]]] = {"target": writer.alone}
            ways |= {name: partial(writer.paired, each, infos[name], lookup=True) for name, each in models.items()}
            ways |= {name: partial(_continue, each, options.tokens, temperature) for name, each in libraries.items()}
            texts = by_turns(ways, prompts)
            report.line(f"\ntemperature {temperature:g}", *table(texts))
            multiples[temperature] = {name: rate(written) / rate(texts["target"]) for name, written in texts.items()}
    report.save()
    _figure(multiples, report.beside(".png"))


def _library(target: Path, lookup: int | None) -> Llama:
    draft = None if lookup is None else LlamaPromptLookupDecoding(num_pred_tokens=lookup)
    judges = draft is not None  # by the logits of all drafts
    both = {"n_threads": 1, "n_threads_batch": 1}
    return Llama(str(target), n_ctx=CONTEXT, draft_model=draft, logits_all=judges, verbose=False, **both)


def _continue(model: Llama, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    model.set_seed(seed)
    model.reset()
    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    began, arrived = time.perf_counter(), []
    for number, token in enumerate(model.generate(prompt, temp=temperature, **plain), 1):
        arrived.append((time.perf_counter(), [token]))
        if number == tokens or token == model.token_eos():
            break
    return timed(began, arrived)


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
