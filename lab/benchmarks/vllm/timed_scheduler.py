"""vLLM's scheduler, which says how long the step of a text's first token took, as the verifier's does of each."""

import time
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from verifier_server.engine.vllm.plugins import KEY, StepReport


class TimedScheduler(Scheduler):  # type: ignore[misc]
    """Runs in the engine-core process."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        self._began = time.perf_counter()
        return super().schedule(*arguments, **named)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        told = StepReport(time.perf_counter() - self._began, len(scheduler_output.num_scheduled_tokens), 0, {})
        for client in outputs.values():
            for first in client.outputs[:1]:
                if first.prefill_stats is not None:
                    first.kv_transfer_params = {KEY: told}
        return outputs
