"""vLLM's executors, without the question that its engine core asks the workers after each step: what they propose.

Drafts come from outside. The question is a round trip between processes, 0.4 ms on a CPU.
"""

from typing import Any

from vllm.v1.executor import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor


class _Unasked:
    def take_draft_token_ids(self) -> None:
        """The workers propose nothing."""


class UnaskedProcesses(_Unasked, MultiprocExecutor):  # type: ignore[misc]
    """Workers in processes of their own."""


class UnaskedInCore(_Unasked, UniProcExecutor):  # type: ignore[misc]
    """One worker in the engine-core process."""


def executor_for(config: Any) -> type[Executor]:
    """The class for vLLM's configuration: vLLM's own, where there is none here, and where vLLM drafts, too."""
    own: type[Executor] = Executor.get_class(config)
    if config.speculative_config is not None and config.speculative_config.method != "custom_class":
        return own
    return {MultiprocExecutor: UnaskedProcesses, UniProcExecutor: UnaskedInCore}.get(own, own)
