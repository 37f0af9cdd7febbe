"""The engines that the suite beside this file is run on. A new engine is one more line in `CANDIDATES`.

A factory must load its model with 3 rows of 384 tokens and 64 tokens in a batch. `tolerance` is by how much a
logit may differ between two ways of computing it: 0 for engines that promise the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from backends.contract import Backend, LoadOptions
from backends.registry import load
from backends.scripted import Script, ScriptedBackend
from models import DEFAULT_TARGET
from tests.stand_ins.neuron import load_on_stand_in

ROWS, CONTEXT, BATCH = 3, 384, 64


@dataclass(frozen=True)
class Candidate:
    """An engine with a model, by a name that test reports show."""

    name: str
    load: Callable[[], Backend]
    tolerance: float
    engine: str | None = None  # of a name that `pytest --engine` knows, if it needs more than `make test` installs


def _scripted(**limits: int | bool) -> Backend:
    script = Script(support=256)
    return ScriptedBackend(script, rows=ROWS, context_length=CONTEXT, max_batch_tokens=BATCH, **limits)  # type: ignore[arg-type]


def _llama(threads: int, deterministic: bool = False) -> Backend:
    options = LoadOptions(
        model=DEFAULT_TARGET,
        rows=ROWS,
        context_length=CONTEXT,
        batch_tokens=BATCH,
        threads=threads,
        deterministic=deterministic,
    )
    return load("llama_cpp", options)


_TORCH = LoadOptions(rows=ROWS, context_length=CONTEXT, batch_tokens=BATCH, device="cpu", threads=1)


def _torch(model: Path, compiler: str | None = None) -> Backend:
    from backends.torch_model import TorchBackend

    return TorchBackend(replace(_TORCH, model=model), compiler=compiler, has_heads=compiler is not None)


def _torch_spread() -> Backend:
    return load("torch", replace(_TORCH, model=DEFAULT_TARGET, tensor_parallel=2))


def _neuron_legacy() -> Backend:
    return load_on_stand_in(rows=ROWS, context_length=CONTEXT, batch_tokens=BATCH)


CANDIDATES = (
    Candidate("scripted", _scripted, 0.0),
    Candidate("scripted, limited", lambda: _scripted(max_rollback=8, can_copy=False), 0.0),
    Candidate("scripted, heads", lambda: _scripted(has_heads=True), 0.0),
    # Widths of passes and places in the cache change the last bits: 0.15 was seen, on logits with a spread of 30.
    Candidate("llama_cpp", lambda: _llama(threads=1), 0.25),
    Candidate("llama_cpp, deterministic", lambda: _llama(threads=1, deterministic=True), 0.0),
    # With two threads and a long text, passes of width 1 take another path: this is where it has to work for it.
    Candidate("llama_cpp, deterministic, two threads", lambda: _llama(threads=2, deterministic=True), 0.0),
    # In float32, sums in another order: 3e-5 was seen. As on a CPU; and traced as on Trainium, with shapes of a few
    # kinds and decisions on heads.
    Candidate("torch", lambda: _torch(DEFAULT_TARGET), 1e-3, "torch"),
    Candidate("torch, fixed shapes", lambda: _torch(DEFAULT_TARGET, "eager"), 1e-3, "torch"),
    Candidate("torch, two processes", _torch_spread, 1e-3, "torch"),
    # In float32 on random weights, with logits of a spread of 1. The stand-in for its library needs torch.
    Candidate("neuron_legacy (stand-in)", _neuron_legacy, 1e-4, "torch"),
)
