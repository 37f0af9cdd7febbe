"""An engine as slow as a large model on its own hardware, for measuring all code around the engine.

`Paced` wraps any engine: logits and KV slots are the engine's, but a pass takes at least the time of its cost. What is
left of that time is slept, which releases the interpreter as llama.cpp does while it computes. `time.sleep` ended 0.11
to 0.18 ms late in the median and 0.26 ms at p95 on 2 virtual cores, with sleeps of 4 to 80 ms.

llama.cpp's engine is paced where it runs its passes: it may run more than it is asked for.

The verifier with a paced target takes the usual VERIFIER_… variables and `PACED_TARGET`, a cost as
`str(LinearCost(…))` gives it. With `PACED_DRAFT` the draft model of mode fused is paced, too:

    PACED_TARGET=80,1.6,0.6 .venv/bin/uvicorn lab.simulator.paced.engine:app --port 8000
"""

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI

from backends.registry import load
from lab.simulator.costs.cost import LinearCost
from specpair.engines.backend import Backend, Entry, Logits, Progress
from specpair.engines.load_options import LoadOptions
from verifier_server.app import create_app
from verifier_server.settings import from_environment

if TYPE_CHECKING:
    app: FastAPI

_log = logging.getLogger("specpair.paced")

# Targets. Decoding reads all weights once a token: 7.54 GiB of Qwen2.5 7B Q8_0 take 29.7 ms at the 273 GB/s of a DGX
# Spark [1] and 34.1 ms measured (29.30 tokens/s [2]), which is 87 % of the bandwidth.
#   25 ms: 25 ms * 273 GB/s * 87 % = 5.9 GB, an 8B model in 5 to 6 bits on that machine.
#   80 ms: Llama 3 70B Q4_K_M (39.59 GiB) decodes 12.48 tokens/s on an M2 Ultra = 80 ms [3]; dense 27B to 31B models
#          in Q4_K_M decode 10 to 12 tokens/s on a DGX Spark = 83 to 100 ms [4].
# A further token, on the DGX Spark: a pass of Llama 3.2 3B Q4_K takes 9.16 ms for 1 and 10.49 ms for 8 [5], 2.1 % of a
# step each; a long prompt of Qwen2.5 7B 0.44 ms a token (2276 tokens/s [2]), 1.3 % of its step. Taken: 2 %.
# A further sequence: 1 and 8 of Qwen2.5 7B with 512 tokens each take 34.2 and 40.9 ms a step [2], 2.8 % of a step for
# each with its token. Taken: 0.8 % beside the token.
#   [1] https://github.com/NVIDIA/dgx-spark-playbooks/pull/91
#   [2] https://github.com/ggml-org/llama.cpp/blob/4c7e9893c4ca8eec35d032726d14b74fae76cff8/benches/dgx-spark.md
#   [3] https://github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference
#   [4] https://github.com/nabe2030/dense-27b-31b-dgx-spark
#   [5] https://github.com/ggml-org/llama.cpp/pull/26705
TARGET_80 = LinearCost(80.0, 1.6, 0.6)
TARGET_25 = LinearCost(25.0, 0.5, 0.2)

# Drafters, 1B models in 4 bits.
#   8 ms: Llama 1B Q4_0 on an M1 Pro, 140 tokens/s = 7.1 ms [6].
#   4 ms: Llama 1.1B Q4_K_M on an M1 Ultra, 242.6 tokens/s = 4.1 ms [7].
# A further token on Apple's GPUs: on the faster machine of [6] Llama 1B Q4_0 takes 3.33 ms for 1 and 4.91 ms for 4,
# 16 % of a step each; of a further sequence 15 % (M2 Ultra, Gemma 3 4B Q8_0: 10.2 ms for 1, 14.9 for 4 of them [8]).
# Taken: 15 %. (On the M1 Pro of [6] it was 36 %; the kernels are others by now.)
# A further sequence, beside its token: its KV cache is read, 16 MiB for 512 tokens of Llama 3.2 1B (16 layers of 8
# heads of 64 values, K and V in 16 bits), so 0.08 ms at the 200 GB/s of an M1 Pro [9], 0.02 ms at 800 (M1 Ultra [10]).
#   [6] https://github.com/ggml-org/llama.cpp/pull/10491
#   [7] https://github.com/geerlingguy/ai-benchmarks/issues/48
#   [8] https://github.com/ggml-org/llama.cpp/pull/15916
#   [9] https://gist.github.com/andrewginns/cf95867c2d79458bd894c07b9e7d5cbd
#   [10] https://github.com/antirez/ds4/pull/706
DRAFTER_8 = LinearCost(8.0, 1.2, 0.1)
DRAFTER_4 = LinearCost(4.0, 0.6, 0.02)


class PassPacer:
    """Delays passes to their cost, and counts them."""

    def __init__(
        self,
        cost: LinearCost,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cost = cost
        self.passes = 0
        self.late_passes = 0  # passes that took longer than their cost
        self.worst_overrun = 0.0  # seconds
        self._clock, self._sleep = clock, sleep
        self._told = False

    def of(self, batch: Sequence[Entry], run: Callable[[], list[Logits]]) -> list[Logits]:
        """Call `run` for the pass over `batch`, and return its result when the time of the pass is over."""
        began = self._clock()
        logits = run()
        left = self.cost.of(batch) - (self._clock() - began)
        self.passes += 1
        if left >= 0:
            self._sleep(left)
        else:
            self.late_passes += 1
            self.worst_overrun = max(self.worst_overrun, -left)
        return logits

    def tell(self) -> None:
        """Log, once, how many passes took longer than their cost, if any did."""
        if self.late_passes and not self._told:
            _log.warning(
                "%d of %d passes took longer than they cost, at worst by %.2f ms",
                self.late_passes,
                self.passes,
                1e3 * self.worst_overrun,
            )
        self._told = True


class Paced(Backend):
    """`backend` at the pace of `cost`. From now on, `backend` must be used through this alone."""

    def __init__(
        self,
        backend: Backend,
        cost: LinearCost,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.model_name, self.vocabulary = backend.name, backend.model_name, backend.vocabulary
        self.slots, self.context_length = backend.slots, backend.context_length
        self.max_batch_tokens, self.max_rollback = backend.max_batch_tokens, backend.max_rollback
        self.can_copy, self.chat_template, self.kv_bytes = backend.can_copy, backend.chat_template, backend.kv_bytes
        self.takes_trees, self.max_leaves, self.max_nodes = backend.takes_trees, backend.max_leaves, backend.max_nodes
        super().__init__()
        self._lengths = [backend.length(slot) for slot in range(backend.slots)]
        self._backend = backend
        self.pace = PassPacer(cost, clock, sleep)

    def close(self) -> None:
        self._backend.close()
        self.pace.tell()

    def reread(self, slot: int, length: int) -> int:
        return self._backend.reread(slot, length)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        return self.pace.of(batch, lambda: self._backend.extend(batch))

    def _keep(self, entry: Entry, path: Sequence[int]) -> None:
        self._backend.keep(entry.slot, path)

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._backend.copy(source, destination, length)

    def _release(self, slot: int) -> None:
        self._backend.release(slot)


def load_paced(engine: str, options: LoadOptions, cost: LinearCost) -> Backend:
    """The engine of this name with its model. Raises ModelLoadError."""
    if engine == "llama_cpp":
        return load_paced_llama(options, PassPacer(cost))
    return Paced(load(engine, options), cost)


def load_paced_llama(options: LoadOptions, pace: PassPacer) -> Backend:
    """A GGUF file in llama.cpp's engine, whose passes take the time that `pace` gives.

    Of recurrent and hybrid models these are more than its callers ask for: tokens are read again after a rejection, at
    the head of a pass or in a pass of their own, and what decides between the two is timed when the model is loaded.

    Raises as `backends.llama_cpp.load.load` does.
    """
    from backends.llama_cpp.backend import LlamaBackend  # only here, so that other engines need no llama.cpp
    from backends.llama_cpp.load import load as load_llama

    class PacedLlama(LlamaBackend):
        def __init__(
            self, options: LoadOptions, progress: Progress | None = None, *, extra_buffers: bool = True
        ) -> None:
            self.pace = pace
            super().__init__(options, progress, extra_buffers=extra_buffers)

        def close(self) -> None:
            super().close()
            self.pace.tell()

        def _pass(self, batch: Sequence[Entry]) -> list[Logits]:
            return self.pace.of(batch, functools.partial(super()._pass, batch))

    return load_llama(options, made_by=PacedLlama)


@functools.cache
def application() -> FastAPI:
    """A verifier with the settings of the environment, its target paced to `PACED_TARGET`."""
    settings = from_environment()
    target = load_paced(settings.backend, settings.load_options(), LinearCost.parse(os.environ["PACED_TARGET"]))
    draft: Backend | None = None
    if "PACED_DRAFT" in os.environ:
        options = settings.draft_options(target.slots, target.context_length)
        draft = load_paced(settings.draft_engine, options, LinearCost.parse(os.environ["PACED_DRAFT"]))
    return create_app(settings, target, draft=draft)


def __getattr__(name: str) -> FastAPI:
    # Made when uvicorn asks for it, so that importing this module loads no model.
    if name == "app":
        return application()
    raise AttributeError(name)
