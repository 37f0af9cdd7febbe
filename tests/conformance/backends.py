"""The engines that the suite beside this file is run on. A new engine is one more line in `candidates`.

A factory must load its model with 3 rows of 384 tokens and 64 tokens in a batch. `tolerance` is by how much a
logit may differ between two ways of computing it: 0 for engines that promise the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from backends.base import Backend, LoadOptions
from backends.registry import load
from backends.scripted import Script, ScriptedBackend
from drafters.shared_engine import SharedEngine
from models import DEFAULT_TARGET
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import load_on_stand_in

ROWS, CONTEXT, BATCH = 3, 384, 64
# In short numbers 0.125 and 0.016 were seen on a CPU; kernels of a GPU that change with the width have room for more.
_ROUNDED = {"bfloat16": 1.0, "float16": 0.125}


@dataclass(frozen=True)
class Candidate:
    """An engine with a model, by a name that test reports show."""

    name: str
    load: Callable[[], Backend]
    tolerance: float
    engine: str | None = None  # of a name that `pytest --engine` knows, if it needs more than `make test` installs


def _scripted(**limits: int | bool) -> Backend:
    script = Script(support=256)
    limits = {"rows": ROWS, **limits}
    return ScriptedBackend(script, context_length=CONTEXT, max_batch_tokens=BATCH, **limits)  # type: ignore[arg-type]


def _llama(threads: int, deterministic: bool = False, rows: int = ROWS) -> Backend:
    options = LoadOptions(
        model=DEFAULT_TARGET,
        rows=rows,
        context_length=CONTEXT,
        batch_tokens=BATCH,
        threads=threads,
        deterministic=deterministic,
    )
    return load("llama_cpp", options)


@dataclass(frozen=True)
class TorchOn:
    """Where the candidates of PyTorch run, as chosen by `--torch-device` and `--torch-dtype`."""

    device: str = "cpu"
    dtype: str = "float32"

    @property
    def tolerance(self) -> float:
        """By which two ways of computing a logit may differ, on logits with a spread of 30."""
        if self.dtype != "float32":
            return _ROUNDED[self.dtype]
        # In float32, sums in another order: 3e-5 was seen on a CPU. Elsewhere kernels change with the width, too.
        return 1e-3 if self.device == "cpu" else 1e-2

    def candidates(self) -> "list[Candidate]":
        """As it runs plainly; and traced as on Trainium, with shapes of a few kinds and decisions on heads.

        Off the CPU the second is compiled in earnest, and heads are what the first gives, too.
        """
        compiler = "eager" if self.device == "cpu" else "inductor"
        where = "" if self == TorchOn() else f" on {self.device} in {self.dtype}"
        return [
            Candidate(f"torch{where}", lambda: self._load(None), self.tolerance, "torch"),
            Candidate(f"torch, fixed shapes{where}", lambda: self._load(compiler), self.tolerance, "torch"),
        ]

    def _load(self, compiler: str | None) -> Backend:
        from backends.torch.backend import TorchBackend

        options = LoadOptions(
            model=DEFAULT_TARGET,
            rows=ROWS,
            context_length=CONTEXT,
            batch_tokens=BATCH,
            device=self.device,
            dtype=self.dtype,
            threads=1,
        )
        has_heads = compiler is not None or self.device != "cpu"
        return TorchBackend(options, compiler=compiler, has_heads=has_heads)


def _mlx(dtype: str) -> Backend:
    with TemporaryDirectory() as folder:
        model = TinyModel(Path(folder) / "tiny").folder
        options = LoadOptions(model=model, rows=ROWS, context_length=CONTEXT, batch_tokens=BATCH, dtype=dtype)
        return load("mlx", options)


def _torch_spread() -> Backend:
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("transformers would take the accelerator for it")
    options = LoadOptions(model=DEFAULT_TARGET, rows=ROWS, context_length=CONTEXT, batch_tokens=BATCH, device="cpu")
    return load("torch", replace(options, threads=1, tensor_parallel=2))


def _neuron_legacy() -> Backend:
    return load_on_stand_in(rows=ROWS, context_length=CONTEXT, batch_tokens=BATCH)


def _shared(engine: Backend) -> Backend:
    """Rows lent by an engine of which others have some, too."""
    shared = SharedEngine(engine)
    shared.view(engine.rows - ROWS)
    view = shared.view(ROWS)
    give_back = view.close

    def close() -> None:
        give_back()
        shared.close()

    view.close = close  # type: ignore[method-assign]
    return view


def candidates(torch: TorchOn) -> list[Candidate]:
    """All engines, with those of PyTorch where and as `torch` says."""
    return [
        Candidate("scripted", _scripted, 0.0),
        Candidate("scripted, limited", lambda: _scripted(max_rollback=8, can_copy=False), 0.0),
        Candidate("scripted, heads", lambda: _scripted(has_heads=True), 0.0),
        Candidate("scripted, shared", lambda: _shared(_scripted(rows=5)), 0.0),
        Candidate("scripted, heads, shared", lambda: _shared(_scripted(rows=5, has_heads=True)), 0.0),
        # Widths of passes and places in the cache change the last bits: 0.15 was seen, on logits with a spread of 30.
        Candidate("llama_cpp", lambda: _llama(threads=1), 0.25),
        Candidate("llama_cpp, deterministic", lambda: _llama(threads=1, deterministic=True), 0.0),
        Candidate("llama_cpp, shared", lambda: _shared(_llama(threads=1, rows=ROWS + 1)), 0.25),
        # With two threads and a long text, passes of width 1 take another path: this is where it has to work for it.
        Candidate("llama_cpp, deterministic, two threads", lambda: _llama(threads=2, deterministic=True), 0.0),
        *torch.candidates(),
        Candidate("torch, two processes", _torch_spread, 1e-3, "torch"),
        # On random weights with logits of a spread of 5. On a CPU the bits are the same; a GPU sums in another order.
        Candidate("mlx", lambda: _mlx("float32"), 1e-4, "mlx"),
        Candidate("mlx, 16 bits", lambda: _mlx("bfloat16"), 0.5, "mlx"),
        # In float32 on random weights, with logits of a spread of 1. The stand-in for its library needs torch.
        Candidate("neuron_legacy (stand-in)", _neuron_legacy, 1e-4, "torch"),
    ]
