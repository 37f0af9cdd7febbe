"""What the verifier's engine `vllm` adds to the steps and the requests of vLLM.

Method. Two engine cores of the same model run on one core of the processor: vLLM's own, without speculation, and one
with the classes that the verifier gives it. By turns, in a random order, both write the same texts without drafts at
temperature 0, one alone and `--together` at once. A step's time is that between two of its outputs, as the process that
asked for the text sees it.

Other work on the machine makes single steps and requests many times longer. So of each turn the median step counts, and
of all turns the least disturbed tenth is shown (`--share`), with the median over all turns beside it.

Then the verifier's engine serves over the second core, with its thread. By turns: one token behind a new prompt by
vLLM, the same as a prefill of the verifier's engine, and a verify of four draft tokens. Each is timed from when it is
handed over to its answer, and the time of its step in the core is subtracted: what is left is what a request costs
beside its step. vLLM's has that, too, for the way to the core and back; the goal is about the difference.

    .venv-vllm/bin/python -m lab.benchmarks.vllm.overhead [--model FOLDER] [--dtype bfloat16]
"""

import json
import os
import queue
import random
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_TARGET
from specpair.engines.load_options import LoadOptions
from specpair.protocol.errors import SpecPairError
from specpair.quantile import quantile
from specpair.speculation.draft import Draft
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.engine.vllm.folders import folder_of
from verifier_server.engine.cores.core import CoreRequest, LoopThread
from verifier_server.engine.cores.engine import CoreEngine
from verifier_server.engine.port import EngineInfo, EngineObserver, Serving
from verifier_server.engine.requests import Answer, Request
from verifier_server.engine.vllm import load as loading
from verifier_server.engine.vllm.arguments import engine_arguments
from verifier_server.engine.vllm.core import VllmCore
from verifier_server.sessions import Session

PROMPT, DRAFTS, CONTEXT = 16, 4, 1024  # tokens
WARM_UP = 3  # turns that are not counted
STEP_GOAL, REQUEST_GOAL = 1.02, 0.3  # times a step of vLLM; ms
FLAGS = {
    "model": {"metavar": "FOLDER", "help": "in Hugging Face layout; without: the shipped target in float32"},
    **{"dtype": "float32", "rounds": 30, "tokens": 40, "together": 8, "requests": 300, "share": 0.1},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    told = Namespace(**vars(options) | {"model": options.model and Path(options.model).name})
    report = Report("vllm.overhead", told, file=f"vllm_overhead_{'shipped' if options.model is None else 'real'}")
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0"}
    for name, value in loading.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with ExitStack() as stack:
        folder = Path(
            options.model or folder_of(DEFAULT_TARGET, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        )
        loop = LoopThread()
        stack.callback(loop.stop)
        cores = {name: stack.enter_context(_core(loop, folder, options, name)) for name in ("vllm", "ours")}
        for texts in (1, options.together):
            _steps(report, loop, cores, texts, options)
        _requests(report, loop, cores, folder, options)
    report.save()


@contextmanager
def _core(loop: LoopThread, folder: Path, options: Any, name: str) -> Iterator[VllmCore]:
    """An engine core: vLLM's own, or with our classes."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    load = LoadOptions(slots=options.together, context_length=CONTEXT, dtype=options.dtype)
    given = engine_arguments(load, {}, 8, folder)
    if name == "vllm":
        for of_ours in ("worker_extension_cls", "speculative_config", "async_scheduling"):
            setattr(given, of_ours, getattr(AsyncEngineArgs(model=str(folder)), of_ours))
        given.scheduler_cls = "lab.benchmarks.vllm.timed_scheduler.TimedScheduler"
    core, config = loop.result(loading.start_core(given))
    try:
        if name == "ours":
            loop.result(loading.judge_in_workers(core, folder, config.model_config.get_vocab_size()))
        yield core
    finally:
        loop.result(core.close())


def _session(name: str, tokens: int) -> Session:
    """A text over a prompt that no text had before."""
    prompt = [random.randrange(300, 4000) for _ in range(PROMPT)]
    return Session(name, prompt, PROMPT, TextSpec(seed=0), PROMPT + tokens, frozenset())


async def _texts(core: VllmCore, count: int, tokens: int, numbers: Iterator[int]) -> list[float]:
    """The seconds of each step in which `count` texts were written."""
    names = {f"text:{next(numbers)}" for _ in range(count)}
    for name in names:
        await core.begin(name, _session(name, tokens), name, CoreRequest(PROMPT, None, PROMPT + tokens))
    left, begun, ended = set(names), set[str](), list[float]()
    while left:
        outputs = await core.outputs()
        begun |= {each.name for each in outputs}
        left -= {each.name for each in outputs if each.ended}
        if len(begun) == count and len(left) == count:
            ended.append(time.perf_counter())
    return [later - earlier for earlier, later in pairwise(ended)]


def _steps(report: Report, loop: LoopThread, cores: dict[str, VllmCore], texts: int, options: Any) -> None:
    numbers = iter(range(10**9))
    medians: dict[str, list[float]] = {name: [] for name in cores}
    for turn in range(WARM_UP + options.rounds):
        for name in random.sample(list(cores), len(cores)):
            took = loop.result(_texts(cores[name], texts, options.tokens, numbers))
            if turn >= WARM_UP:
                medians[name].append(quantile(took, 0.5))
    quiet = {name: 1e3 * quantile(each, options.share) for name, each in medians.items()}
    usual = {name: 1e3 * quantile(each, 0.5) for name, each in medians.items()}
    found = quiet["ours"] / quiet["vllm"]
    report.line(
        f"a step, {texts} text{'s' if texts > 1 else ''}: vLLM {quiet['vllm']:.3f} ms, ours {quiet['ours']:.3f} ms, "
        f"ratio {found:.3f}: {_reached(found <= STEP_GOAL)} (medians {usual['vllm']:.3f} and {usual['ours']:.3f})"
    )


def _requests(report: Report, loop: LoopThread, cores: dict[str, VllmCore], folder: Path, options: Any) -> None:
    from backends.hugging_face.vocabulary import read_vocabulary

    numbers = iter(range(10**9))
    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    vocabulary = read_vocabulary(folder, size)
    info = EngineInfo("vllm", "", vocabulary, options.together, CONTEXT, 8, 0, 1, None)
    engine = CoreEngine(cores["ours"], loop, Serving(info, time.perf_counter, lambda: None, EngineObserver()), [0.01])
    engine.start()

    def answered(request: Request) -> tuple[float, float]:
        """Seconds until the answer, and of the steps that ran the request."""
        results: queue.SimpleQueue[Answer | SpecPairError] = queue.SimpleQueue()
        request.done = results.put
        began = time.perf_counter()
        engine.submit(request)
        answer = results.get()
        if isinstance(answer, SpecPairError):
            raise answer
        return time.perf_counter() - began, answer.forward

    async def alone() -> tuple[float, float]:
        name, core = f"text:{next(numbers)}", cores["vllm"]
        session = _session(name, 1)
        began = time.perf_counter()
        await core.begin(name, session, name, CoreRequest(PROMPT, None, PROMPT + 1))
        while not (outputs := await core.outputs()):
            pass
        return time.perf_counter() - began, outputs[0].step.seconds

    taken: dict[str, list[float]] = {"vLLM": [], "prefill": [], "verify": []}
    for turn in range(WARM_UP + options.requests):
        session = _session(f"session {turn}", 64)
        found = {}
        for name in random.sample(["vLLM", "prefill"], 2):
            found[name] = loop.result(alone()) if name == "vLLM" else answered(Request(session, Draft(PROMPT)))
        draft = [random.randrange(300, 4000) for _ in range(DRAFTS)]
        found["verify"] = answered(Request(session, Draft.chain(len(session.tokens), draft)))
        engine.forget(session)
        if turn >= WARM_UP:
            for name, (took, of_step) in found.items():
                taken[name].append(1e3 * (took - of_step))
    quiet = {name: quantile(each, options.share) for name, each in taken.items()}
    usual = {name: quantile(each, 0.5) for name, each in taken.items()}
    report.line(f"a request beside its step: vLLM {quiet['vLLM']:.3f} ms (median {usual['vLLM']:.3f})")
    for name in ("prefill", "verify"):
        more = quiet[name] - quiet["vLLM"]
        report.line(
            f"  {name} {quiet[name]:.3f} ms, {more:+.3f} ms: {_reached(more <= REQUEST_GOAL)} "
            f"(median {usual[name]:.3f})"
        )


def _reached(goal: bool) -> str:
    return "the goal is reached" if goal else "the goal is MISSED"


if __name__ == "__main__":
    main()
