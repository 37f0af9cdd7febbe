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
KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
DRAFT_KV = ("f16", "q8_0")  # of a draft model, as help lists them
COARSE_KV = ("q4_0",)  # keys that are too coarse to be moved to other positions
NO_HEAD, HEAD_IF_ANY, HEAD = "off", "auto", "on"  # layers of a model that draft for it
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
        "number of slots: each holds the KV cache of one session; auto: as many as free memory allows",
        formerly="rows",
        auto=True,
        ge=1,
        group="model",
        only="verifier",
    )
    context_length: int | None = option(
        None,
        "context length of a text, in tokens; auto: as trained, at most 4096",
        name="context",
        auto=True,
        ge=1,
        group="model",
    )
    # None: each slot has room for its own `context_length` tokens. Else all slots share one KV cache with room for
    # `contexts` full contexts and this many tokens more.
    shared_cells: int | None = option(None, "tokens beyond full contexts, in a KV cache that all slots share", ge=0)
    contexts: int = option(1, "full contexts in a shared KV cache: one a text that shares nothing with others", ge=1)
    # Beside `slots`. An engine that cannot splice has none of them, nor has one with a shorter context.
    spare_slots: int = option(0, "further slots, in which pieces of long texts are read before a splice", ge=0)
    spare_from: int = option(0, "context length from which spare slots are of use", ge=0)
    # Whether to load layers of the model that draft for it: not, if it has some, or else it cannot be loaded.
    head: str = option(NO_HEAD, "the model's own head", choices=(NO_HEAD, HEAD_IF_ANY, HEAD))
    # In place of the head in its own file. `head` must allow one.
    head_file: Path | None = option(None, "file with a head for the model")
    kv_type: str = option(
        "f16",
        "llama.cpp: data type of the KV cache",
        choices=KV_TYPES,
        group="model",
    )
    mmap: bool = option(True, "map the model file into memory instead of reading it", group="model", only="verifier")
    threads: int | None = option(
        None, "CPU threads of a forward pass", auto=True, ge=1, le=THREADS_AT_MOST, group="engine"
    )
    gpu_layers: int = option(
        -1, "llama.cpp: layers on the GPU; -1: all (a CPU build ignores this)", ge=-1, group="engine"
    )
    device: str | None = option(
        None, "torch: cpu, cuda, cuda:1, mps, neuron", usually="the best available", group="engine", placeholder="NAME"
    )
    dtype: str | None = option(
        None,
        "torch, mlx, neuron_legacy: data type",
        usually="bfloat16, on a CPU float32; mlx: as stored",
        choices=DTYPES,
        group="engine",
    )
    compile: bool = option(
        False, "torch: compile for all shapes at the start, which takes minutes; then passes are faster", group="engine"
    )
    compile_widths: tuple[int, ...] | None = option(
        None,
        "numbers of tokens per session to compile passes for, for example 1,8,32",
        usually="the engine's",
        group="engine",
    )
    compile_spans: tuple[int, ...] | None = option(
        None,
        "numbers of cached tokens to compile passes for, for example 1024,4096",
        usually="the engine's",
        group="engine",
    )
    compile_workers: int | None = option(
        None,
        "neuron_legacy: programs compiled at a time; auto: as many as free memory allows",
        auto=True,
        ge=1,
        group="engine",
    )
    compile_cache: Path | None = option(
        None,
        "folder for compiled programs",
        usually="in the user's cache folder",
        group="engine",
        placeholder="FOLDER",
    )
    tensor_parallel: int | None = option(
        None,
        "torch, neuron_legacy: devices to split the model over; auto: 1, or as many as the model needs to fit",
        auto=True,
        ge=1,
        group="engine",
    )
    batch_tokens: int = option(
        512,
        "maximum number of tokens in one forward pass, over all sessions",
        ge=LEAST_BATCH,
        group="engine",
        only="verifier",
    )
    weights: str = option(
        STORED,
        "the draft model's weights; stored: as in the file; auto: with llama.cpp on a CPU, a Q4_0 "
        "copy in the cache folder if that is faster, else as in the file",
        choices=WEIGHTS,
    )
    flash_attention: bool = option(True, "use flash attention", group="engine", only="verifier")
    deterministic: bool = option(
        False,
        "bit-identical logits whatever other sessions do (GGUF on a CPU); slower, since sessions share no passes",
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


def check_draft_kv(kv_type: str) -> None:
    """Raises ValueError for a data type of the KV cache with which a model should not draft."""
    if kv_type in COARSE_KV:
        raise ValueError(
            f"{kv_type} is too coarse for a draft model: it picks other tokens, more so when a long prompt moves its "
            f"keys to other positions. Choose {' or '.join(DRAFT_KV)}"
        )


class FreeMemory(NamedTuple):
    """`free`: bytes of memory that are free where the engine puts a model."""

    free: int
    weight: float | None = None  # bytes of a number of the weights there; None: as many as in the file
    cached: float = 2.0  # bytes of a number in the KV cache
