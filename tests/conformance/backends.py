"""The engines that the conformance tests run on. A new engine is one more line in `candidates`.

A factory must load its model with 3 slots of 384 tokens and 64 tokens in a batch. `tolerance`: how much a logit may
differ between two ways to compute it; 0 for engines that promise equal bits.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from backends.registry import load
from backends.scripted import Script, ScriptedBackend
from models import DEFAULT_TARGET
from models.heads import make_head_model
from specpair.drafters.shared_engine import SharedEngine
from specpair.engines.backend import Backend
from specpair.engines.load_options import HEAD, LoadOptions
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import load_on_stand_in, own_environment
from tests.stand_ins.tiny_architectures import Sizes, write_tiny_architecture
from tests.stand_ins.tiny_folders import write_folder_with_head, write_tiny_folder
from tests.transformers_neuronx.loaded import load_model

_HYBRID = "lfm2", "granitehybrid", "qwen3next", "qwen35"
_WITH_HEAD = {"glm4moe": "experts", "qwen35": "hybrid"}
KINDS = "dense", "window", "experts", "recurrent", "hybrid"
SLOTS, CONTEXT, BATCH = 3, 384, 64
# In 16-bit numbers, differences of 0.125 and 0.016 were measured on a CPU. GPU kernels depend on the width and may
# differ more.
_ROUNDED = {"bfloat16": 1.0, "float16": 0.125}


@dataclass(frozen=True)
class Candidate:
    """An engine with a model, and its name in test reports."""

    name: str
    load: Callable[[], Backend]
    tolerance: float
    engine: str | None = None  # its name for `pytest --engine`, if it needs more than `make test` installs
    kind: str = "dense"  # of model, one of `KINDS`
    has_head: bool = False  # whether the model has a head that drafts

    @property
    def runs_on(self) -> str:
        """The engine's name."""
        return re.split("[ ,]", self.name)[0]

    @property
    def takes_trees(self) -> bool:
        """As docs/engines.md#trees-of-drafts has it."""
        without = self.runs_on == "neuron_legacy" or "deterministic" in self.name
        return not without and self.kind not in ("recurrent", "hybrid")


def _scripted(**limits: int | bool) -> Backend:
    script = Script(support=256)
    limits = {"slots": SLOTS, **limits}
    return ScriptedBackend(script, context_length=CONTEXT, max_batch_tokens=BATCH, **limits)  # type: ignore[arg-type]


def _llama(threads: int, deterministic: bool = False, slots: int = SLOTS) -> Backend:
    options = LoadOptions(
        model=DEFAULT_TARGET,
        slots=slots,
        context_length=CONTEXT,
        batch_tokens=BATCH,
        threads=threads,
        deterministic=deterministic,
    )
    return load("llama_cpp", options)


def _llama_of(architecture: str, slots: int = SLOTS, sizes: Sizes = Sizes()) -> Backend:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{architecture}.gguf"
        write_tiny_architecture(architecture, path, sizes)
        options = LoadOptions(
            path, slots, CONTEXT, batch_tokens=BATCH, threads=1, mmap=False, kv_type="f32", flash_attention=False
        )
        return load("llama_cpp", options)


def _llama_with_head(kind: str) -> Backend:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.gguf"
        make_head_model(kind, path)
        options = LoadOptions(path, SLOTS, CONTEXT, batch_tokens=BATCH, threads=1, head=HEAD)
        return load("llama_cpp", replace(options, mmap=False, kv_type="f32", flash_attention=False))


@dataclass(frozen=True)
class TorchOn:
    """The device and dtype of the PyTorch candidates, set by `--torch-device` and `--torch-dtype`."""

    device: str = "cpu"
    dtype: str = "float32"

    @property
    def tolerance(self) -> float:
        """How much a logit may differ between two ways to compute it, on logits with a spread of 30."""
        if self.dtype != "float32":
            return _ROUNDED[self.dtype]
        # In float32 the order of sums matters: 3e-5 was measured on a CPU. GPU kernels also depend on the width.
        return 1e-3 if self.device == "cpu" else 1e-2

    def candidates(self) -> "list[Candidate]":
        """One uncompiled; one traced as on Trainium, with few shapes and top logits.

        On other devices than the CPU, the second is really compiled, and the first returns top logits, too.
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
            slots=SLOTS,
            context_length=CONTEXT,
            batch_tokens=BATCH,
            device=self.device,
            dtype=self.dtype,
            threads=1,
        )
        has_top_logits = compiler is not None or self.device != "cpu"
        return TorchBackend(options, compiler=compiler, has_top_logits=has_top_logits)


def _mlx(dtype: str) -> Backend:
    with TemporaryDirectory() as folder:
        model = TinyModel(Path(folder) / "tiny").folder
        options = LoadOptions(model=model, slots=SLOTS, context_length=CONTEXT, batch_tokens=BATCH, dtype=dtype)
        return load("mlx", options)


def _torch_spread() -> Backend:
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("transformers would use the accelerator")
    options = LoadOptions(model=DEFAULT_TARGET, slots=SLOTS, context_length=CONTEXT, batch_tokens=BATCH, device="cpu")
    return load("torch", replace(options, threads=1, tensor_parallel=2))


def _torch_of(family: str, slots: int = SLOTS, has_top_logits: bool = False) -> Backend:
    from backends.torch.backend import TorchBackend

    with TemporaryDirectory() as folder:
        write_tiny_folder(family, Path(folder))
        options = LoadOptions(Path(folder), slots, CONTEXT, batch_tokens=BATCH, device="cpu", threads=1)
        return TorchBackend(options, has_top_logits=has_top_logits)


def _torch_with_head(family: str, right: bool = False) -> Backend:
    with TemporaryDirectory() as folder:
        write_folder_with_head(family, Path(folder), right=right)
        options = LoadOptions(Path(folder), SLOTS, CONTEXT, batch_tokens=BATCH, device="cpu", threads=1, head=HEAD)
        return load("torch", options)


def _neuron_legacy() -> Backend:
    return load_on_stand_in(slots=SLOTS, context_length=CONTEXT, batch_tokens=BATCH)


def _neuron_legacy_on_source() -> Backend:
    """The library stays imported until the backend is closed."""
    from tests.transformers_neuronx import source  # needs torch

    with TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(own_environment())
        stack.enter_context(source.library())
        made = TinyModel(Path(folder) / "tiny")
        backend = load_model(made, slots=SLOTS, context_length=CONTEXT, batch_tokens=BATCH)
        unload, until_closed = backend.close, stack.pop_all()

        def close() -> None:
            unload()
            until_closed.close()

        backend.close = close  # type: ignore[method-assign]
        return backend


def _shared(engine: Backend) -> Backend:
    """A view of a shared engine, of which another view holds the other slots."""
    shared = SharedEngine(engine)
    shared.view(engine.slots - SLOTS)
    view = shared.view(SLOTS)
    give_back = view.close

    def close() -> None:
        give_back()
        shared.close()

    view.close = close  # type: ignore[method-assign]
    return view


def candidates(torch: TorchOn) -> list[Candidate]:
    """All engines, with the PyTorch engines on the device and with the dtype of `torch`."""
    return [
        Candidate("scripted", _scripted, 0.0),
        Candidate("scripted, limited", lambda: _scripted(max_rollback=8, can_copy=False), 0.0),
        Candidate("scripted, top logits", lambda: _scripted(has_top_logits=True), 0.0),
        Candidate("scripted, shared", lambda: _shared(_scripted(slots=5)), 0.0),
        Candidate("scripted, top logits, shared", lambda: _shared(_scripted(slots=5, has_top_logits=True)), 0.0),
        # Widths of passes and cells in the cache change the last bits: 0.15 was measured on logits with a spread of 30.
        Candidate("llama_cpp", lambda: _llama(threads=1), 0.25),
        Candidate("llama_cpp, deterministic", lambda: _llama(threads=1, deterministic=True), 0.0),
        Candidate("llama_cpp, shared", lambda: _shared(_llama(threads=1, slots=SLOTS + 1)), 0.25),
        # With two threads and a long text, passes of width 1 take another code path, which `deterministic` must avoid.
        Candidate("llama_cpp, deterministic, two threads", lambda: _llama(threads=2, deterministic=True), 0.0),
        # On random weights with logits of a spread of 5, in float32.
        # llama.cpp looks up Gemma's activation function in a table of 16-bit numbers; 0.0011 was seen with AVX2.
        Candidate("llama_cpp, window", partial(_llama_of, "gemma3", sizes=Sizes(layers=6)), 3e-3, kind="window"),
        Candidate("llama_cpp, experts", partial(_llama_of, "qwen3moe"), 1e-4, kind="experts"),
        Candidate("llama_cpp, recurrent", partial(_llama_of, "mamba2"), 5e-5, kind="recurrent"),
        *[Candidate(f"llama_cpp, hybrid {name}", partial(_llama_of, name), 5e-5, kind="hybrid") for name in _HYBRID],
        Candidate(
            "llama_cpp, hybrid, shared", lambda: _shared(_llama_of("lfm2", slots=SLOTS + 1)), 5e-5, kind="hybrid"
        ),
        *[
            Candidate(f"llama_cpp, head {name}", partial(_llama_with_head, name), 5e-4, kind=kind, has_head=True)
            for name, kind in _WITH_HEAD.items()
        ],
        *torch.candidates(),
        Candidate("torch, two processes", _torch_spread, 1e-3, "torch"),
        # In float32 on random weights, with logits of a spread of 5.
        Candidate("torch, window", partial(_torch_of, "gemma3_text"), 1e-3, "torch", kind="window"),
        Candidate("torch, experts", partial(_torch_of, "qwen3_moe"), 1e-3, "torch", kind="experts"),
        Candidate("torch, recurrent", partial(_torch_of, "mamba2"), 1e-3, "torch", kind="recurrent"),
        Candidate("torch, hybrid lfm2", partial(_torch_of, "lfm2"), 1e-3, "torch", kind="hybrid"),
        Candidate(
            "torch, hybrid qwen3_next",
            partial(_torch_of, "qwen3_next", has_top_logits=True),
            5e-3,
            "torch",
            kind="hybrid",
        ),
        Candidate("torch, hybrid, shared", lambda: _shared(_torch_of("lfm2", SLOTS + 1)), 1e-3, "torch", kind="hybrid"),
        *[
            Candidate(f"torch, {name} head", partial(_torch_with_head, "mellum", right), 1e-3, "torch", "window", True)
            for name, right in (("noisy", False), ("right", True))
        ],
        # On random weights with logits of a spread of 5. On a CPU the bits are equal; a GPU sums in another order.
        Candidate("mlx", lambda: _mlx("float32"), 1e-4, "mlx"),
        Candidate("mlx, 16 bits", lambda: _mlx("bfloat16"), 0.5, "mlx"),
        # In float32 on random weights, with logits of a spread of 1. The stand-in for its library needs torch.
        Candidate("neuron_legacy (stand-in)", _neuron_legacy, 1e-4, "torch"),
        Candidate("neuron_legacy (source, interpreted)", _neuron_legacy_on_source, 1e-4, "tnx"),
    ]
