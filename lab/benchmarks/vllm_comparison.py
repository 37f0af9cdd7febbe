"""Texts through the pair, with a verifier on vLLM, against vLLM alone and vLLM's own n-gram speculation.

Method. Three servers hold the same folder: vLLM's own, the same with n-grams, and the verifier over vLLM. Each has
one core, the same for all, and writes only while the others are idle. The drafter is this process, with a draft model
on one thread, for which another core is free. (It is not bound to that core: then it would see one core in all, take it
for the verifier's, and draft only while the verifier waits.) Every prompt is written by turns in each way, in another
order for each. Over loopback. Tokens per second after the first token, by this process's clock. Both ends share one
memory here, as on two machines they do not.

At temperature 0, texts of all ways are compared. Above it, each way draws by itself, and vLLM's rejection sampler for
CPUs draws wrong (issue 55005 of vLLM): only its speed counts.

Prompts: files to be written again with a small change (edit), code and stories to be continued.

    python -m lab.benchmarks.vllm_comparison --python .venv-vllm/bin/python --model FOLDER --draft SMALL.gguf
"""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from drafter_client import DraftModel, Lookup, Mode, Options, Pair
from lab.benchmarks.first_run import CODE, EDIT, STORY, prompts_of
from lab.benchmarks.harness.machine import running
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Way, Written, by_library, by_turns, rate, table, timed
from specpair.engines.load_options import LoadOptions
from tests.deploy.routers import free_port

SERVERS_CORE = 0
VLLM = "vllm.entrypoints.openai.api_server"
_PATIENCE = 900.0  # seconds until a server is ready, and until it goes on with a text
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'  # as in vLLM's documentation
_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": str(SERVERS_CORE)}
FLAGS = {
    "python": {"default": ".venv-vllm/bin/python", "help": "of the environment of requirements/vllm.txt"},
    "model": {"metavar": "FOLDER", "help": "of the target, in Hugging Face layout", "required": True},
    "draft": {"metavar": "FILE", "help": "GGUF file of the draft model", "required": True},
    "texts": {"default": 2, "help": "of each kind, at most 6 (default: %(default)s)"},
    "tokens": {"default": 64, "help": "of each text (default: %(default)s)"},
    "kinds": {"default": [EDIT, CODE, STORY], "choices": (EDIT, CODE, STORY)},
    "temperatures": [0.0, 0.8],
    **{"dtype": "bfloat16", "context": 2048},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    # Files by their names alone.
    told = {name: Path(getattr(options, name)).name for name in ("model", "draft")}
    report = Report("vllm_comparison", Namespace(**vars(options) | told | {"python": None}))
    with ExitStack() as stack:
        flags = {"target": {}, "vLLM, n-gram": {"--speculative-config": NGRAM}}
        ours = stack.enter_context(server(options, "verifier_server", None))
        urls = {name: stack.enter_context(server(options, VLLM, given)) for name, given in flags.items()}
        engine = LoadOptions(threads=1, context_length=options.context)
        pair = stack.enter_context(Pair(ours, DraftModel(options.draft, engine=engine)))
        lookup = stack.enter_context(Pair(ours, Lookup()))
        clients = {
            name: stack.enter_context(closing(httpx.Client(base_url=url, timeout=_PATIENCE)))
            for name, url in urls.items()
        }
        passes = ", ".join(f"{at}: {ms:.0f}" for at, ms in enumerate(pair.target.pass_ms[:9], 1))
        report.line(f"ms of a pass of the verifier, by its tokens: {passes}")
        for temperature in options.temperatures:
            chosen = Options(max_tokens=options.tokens, temperature=temperature, mode=Mode.REMOTE)
            ways: dict[str, Way[list[int]]] = {
                name: partial(_by_vllm, client, options.tokens, temperature) for name, client in clients.items()
            }
            ways |= {"pair": partial(_by_pair, pair, chosen), "pair, lookup alone": partial(_by_pair, lookup, chosen)}
            for way in ways.values():  # engines make ready what they need
                way(pair.encode("def main():"), 0)
            for kind in options.kinds:
                written = by_turns(ways, prompts_of(kind, pair, options.texts))
                report.line(f"\n{kind}, temperature {temperature:g}", *table(written))
                best = max(rate(written[name]) for name in ("target", "vLLM, n-gram"))
                report.line(f"  the pair is {rate(written['pair']) / best:.2f} times the better of vLLM's two")
    report.save()


@contextmanager
def server(options: Namespace, module: str, flags: dict[str, str] | None) -> Iterator[str]:
    """Run a server of vLLM with these flags more (a switch has no value), or the verifier, while the block lasts.
    Yields its URL when it is ready. Raises NotReady.
    """
    port, environment = free_port(), {**os.environ, **_ENVIRONMENT}
    arguments = ["--port", str(port)]
    if flags is None:
        environment |= {
            "VERIFIER_BACKEND": "vllm",
            "VERIFIER_MODEL": options.model,
            "VERIFIER_CONTEXT": str(options.context),
            "VERIFIER_SLOTS": "2",
            "VERIFIER_DTYPE": options.dtype,
            "VERIFIER_VLLM_ARGS": "{enforce_eager = true}",
            "VERIFIER_DRAIN_SECONDS": "0",
        }
    else:
        given = {"--model": options.model, "--max-model-len": str(options.context), "--max-num-seqs": "2"}
        given |= {"--dtype": options.dtype, "--served-model-name": "target", **flags}
        arguments += [*(each for item in given.items() for each in item if each), "--enforce-eager"]
    command = ("-x", "taskset", "-c", str(SERVERS_CORE), os.path.abspath(options.python), "-m", module, *arguments)
    url, path = f"http://127.0.0.1:{port}", "/ready" if flags is None else "/health"
    with (
        closing(httpx.Client(base_url=url)) as client,
        running(*command, client=client, ready=path, environment=environment, seconds=_PATIENCE),
    ):
        yield url


def _by_pair(pair: Pair, options: Options, prompt: list[int], seed: int) -> Written:
    return by_library(pair, prompt, replace(options, seed=seed).cold())


def _by_vllm(client: httpx.Client, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    """The text that follows a prompt by a server of vLLM, streamed, without what an earlier one has cached."""
    request: dict[str, Any] = {"model": "target", "prompt": prompt, "max_tokens": tokens, "temperature": temperature}
    request |= {"seed": seed, "stream": True, "return_token_ids": True, "cache_salt": os.urandom(8).hex()}
    began, arrived = time.perf_counter(), list[tuple[float, list[int]]]()
    with client.stream("POST", "/v1/completions", json=request) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            field, _, value = line.partition(": ")
            if field == "data" and value != "[DONE]":
                ids = json.loads(value)["choices"][0]["token_ids"]
                if ids:
                    arrived.append((time.perf_counter(), ids))
    return timed(began, arrived)


if __name__ == "__main__":
    main()
