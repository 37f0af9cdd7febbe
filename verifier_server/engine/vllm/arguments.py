"""vLLM's engine arguments, from our settings and the table `vllm_args`, which is passed through."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import COMPILATION, LoadOptions
from verifier_server.engine.vllm.plugins import KEY

PLUGINS = "verifier_server.engine.vllm.plugins"
MOST_DRAFTS = 128  # of a text in a step: vLLM's limit
_CONTEXT = 4096  # tokens: longer ones have to be asked for, since vLLM checks that one whole text fits into its cache
_VLLMS_OWN = (  # options of engines that vLLM decides by itself
    *("deterministic", "mmap", "gpu_layers", "compile", *COMPILATION, "device", "threads"),
    *("flash_attention", "batch_tokens", "kv_type"),
)
# What the plug-ins rely on. Draft tokens come from outside, and what a text is drawn by is ours.
OURS = {
    "model": "VERIFIER_MODEL",
    "scheduler_cls": "nothing",
    "worker_extension_cls": "nothing",
    "async_scheduling": "nothing",
    "skip_tokenizer_init": "nothing",
}


def read_table(text: str) -> dict[str, Any]:
    """The table that a variable or a flag holds: an inline table of TOML, or lines of keys. Raises ValueError."""
    inline = text.lstrip().startswith("{")
    try:
        table = tomllib.loads(f"table = {text}")["table"] if inline else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML table, such as {{tensor_parallel_size = 2}}: {error}") from None
    return dict(table)


def engine_arguments(options: LoadOptions, given: Mapping[str, Any], max_drafts: int, folder: Path) -> Any:
    """An `AsyncEngineArgs` of vLLM. Raises ModelLoadError, which names the argument at fault."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    options.refuse("vllm", *_VLLMS_OWN)
    known = {field.name for field in fields(AsyncEngineArgs)}
    for name in given:
        if name in OURS:
            instead = "leave it out" if OURS[name] == "nothing" else f"set {OURS[name]}"
            raise _wrong(f"{name} is set by the verifier: {instead}")
        if name not in known:
            raise _wrong(f"{name} is no engine argument of this vLLM: see AsyncEngineArgs")
    usual = {
        "max_model_len": options.context_length or _trained(folder),
        "max_num_seqs": options.slots,
        "dtype": options.dtype or "auto",
        "tensor_parallel_size": options.tensor_parallel or 1,
        "enable_prefix_caching": True,
    }
    ours = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "async_scheduling": False,
        "disable_log_stats": True,
        "scheduler_cls": f"{PLUGINS}.scheduler.DraftScheduler",
        "worker_extension_cls": f"{PLUGINS}.worker.JudgingWorker",
    }
    ours |= _speculation(given, min(max_drafts, MOST_DRAFTS))
    try:
        return AsyncEngineArgs(**usual | dict(given) | ours)
    except (TypeError, ValueError) as error:
        raise _wrong(first_line(error)) from error


def _speculation(given: Mapping[str, Any], max_drafts: int) -> dict[str, Any]:
    """The arguments by which vLLM has room for drafts from outside, and may propose tokens of its own."""
    own = given.get("speculative_config")
    others = dict(given.get("additional_config") or {})
    if own is None:
        nothing = {"method": "custom_class", "model": f"{PLUGINS}.worker.NoProposer"}
        return {
            "speculative_config": nothing | {"num_speculative_tokens": max_drafts},
            "additional_config": others | {KEY: 0},
        }
    if not isinstance(own, Mapping) or own.get("method") != "ngram":
        raise _wrong(
            "speculative_config: the method must be ngram. Any other proposes tokens for every text, also for those "
            "whose drafts come from outside, and vLLM has no switch by text"
        )
    most = own.get("num_speculative_tokens")
    if not isinstance(most, int) or not 1 <= most <= max_drafts:
        raise _wrong(
            f"speculative_config: num_speculative_tokens must be 1 to {max_drafts}, as many as VERIFIER_MAX_DRAFTS "
            f"allows, got {most}"
        )
    return {
        "speculative_config": dict(own) | {"num_speculative_tokens": max_drafts},
        "additional_config": others | {KEY: most},
    }


def _trained(folder: Path) -> int:
    from specpair.engines.model_files import read_json

    stated = read_json(folder / "config.json").get("max_position_embeddings")
    return min(int(stated), _CONTEXT) if stated else _CONTEXT


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"vllm_args: {reason}", "vllm_args")
