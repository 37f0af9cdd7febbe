"""The options with which an engine loads a model."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from specpair.engines.errors import ModelLoadError
from specpair.options.option import option

DTYPES = ("float32", "bfloat16", "float16")
# A model's weights: as its file has them, or in a type that is faster on this machine, if the engine knows one. Only
# those of a draft model may change, which do not affect the text.
STORED, FASTEST = "stored", "auto"
WEIGHTS = (FASTEST, STORED)
COMPILATION = ("compile_widths", "compile_spans", "compile_workers", "compile_cache")  # options, see LoadOptions
THREADS_AT_MOST = 1024  # several thousand threads crash GCC's OpenMP, which llama.cpp uses
MOST_SLOTS = 256  # slots of one engine: llama.cpp's limit
LEAST_BATCH = 8  # the least that the most tokens of a forward pass may be


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """A user's settings of an engine. None leaves a setting to the engine.

    Flags, variables and keys of both ends are made from these fields: an option without a group has none.
    """

    model: Path | None = option(
        None,
        "model file or folder",
        usually="the target of the pair that ships",
        group="model",
        placeholder="PATH",
        only="verifier",
    )
    # None: as many as memory allows, where an engine can tell.
    slots: int | None = option(
        1,
        "sessions whose KV cache is held at once; auto: from free memory",
        formerly="rows",
        auto=True,
        ge=1,
        group="model",
        only="verifier",
    )
    context_length: int | None = option(
        None,
        "tokens of context for each text; auto: as trained, up to 4096",
        name="context",
        auto=True,
        ge=1,
        group="model",
    )
    # None: each slot has room for its own `context_length` tokens. Else all slots share one KV cache with room for
    # `contexts` full contexts and this many tokens more.
    shared_cells: int | None = option(None, "tokens beyond full contexts, in a KV cache that all slots share", ge=0)
    contexts: int = option(1, "full contexts in a shared KV cache: one a text that shares nothing with others", ge=1)
    kv_type: str = option(
        "f16",
        "number type of llama.cpp's KV cache",
        choices=("f32", "f16", "q8_0", "q4_0"),
        group="model",
        only="verifier",
    )
    mmap: bool = option(True, "map the model file instead of reading it", group="model", only="verifier")
    threads: int | None = option(
        None, "CPU threads of a forward pass", auto=True, ge=1, le=THREADS_AT_MOST, group="engine"
    )
    gpu_layers: int = option(-1, "layers on the GPU; -1: all (a CPU build ignores it)", ge=-1, group="engine")
    device: str | None = option(
        None, "torch: cpu, cuda, cuda:1, mps, neuron", usually="the best there is", group="engine", placeholder="NAME"
    )
    dtype: str | None = option(
        None,
        "torch, mlx, neuron_legacy: number type",
        usually="bfloat16, on a CPU float32; mlx: as stored",
        choices=DTYPES,
        group="engine",
    )
    compile: bool = option(
        False, "torch: compile for all shapes at the start; faster passes, minutes of waiting", group="engine"
    )
    compile_widths: tuple[int, ...] | None = option(
        None, "tokens per session that passes are compiled for, as 1,8,32", usually="the engine's", group="engine"
    )
    compile_spans: tuple[int, ...] | None = option(
        None, "cached tokens that passes are compiled for, as 1024,4096", usually="the engine's", group="engine"
    )
    compile_workers: int | None = option(
        None, "neuron_legacy: programs compiled at a time; auto: from free memory", auto=True, ge=1, group="engine"
    )
    compile_cache: Path | None = option(
        None,
        "folder where compiled programs are kept",
        usually="in the user's cache folder",
        group="engine",
        placeholder="FOLDER",
    )
    tensor_parallel: int | None = option(
        None,
        "torch, neuron_legacy: devices that share the model; auto: 1, or as many as memory needs",
        auto=True,
        ge=1,
        group="engine",
    )
    batch_tokens: int = option(
        512, "tokens in one forward pass, over all sessions", ge=LEAST_BATCH, group="engine", only="verifier"
    )
    weights: str = option(
        STORED,
        "the draft model's weights; auto: on llama.cpp and a CPU in Q4_0, where that is faster, from a copy that is "
        "made once in the cache folder",
        choices=WEIGHTS,
    )
    flash_attention: bool = option(True, "use flash attention", group="engine", only="verifier")
    deterministic: bool = option(
        False,
        "same logits whatever other sessions do (GGUF on a CPU); slower: a pass for each",
        group="engine",
        only="verifier",
    )

    def refuse(self, engine: str, *names: str) -> None:
        """Raises ModelLoadError if any option in `names` differs from its default, since `engine` would ignore it.

        A `tensor_parallel` of 1 is what every engine does.
        """
        for field in fields(self):
            usual = (field.default, 1) if field.name == "tensor_parallel" else (field.default,)
            if field.name in names and getattr(self, field.name) not in usual:
                raise ModelLoadError(f"{field.name}: the {engine} backend has no such choice, leave it out", field.name)


class FreeMemory(NamedTuple):
    """`free`: bytes of memory that are free where the engine puts a model."""

    free: int
    weight: float | None = None  # bytes of a number of the weights there; None: as many as in the file
    cached: float = 2.0  # bytes of a number in the KV cache
