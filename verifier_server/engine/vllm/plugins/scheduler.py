"""vLLM's scheduler with the client's drafts: running requests get them right before the step.

A draft travels as a request of its own, so that it arrives in order with the requests that it is for, and wakes an
engine core that has nothing to do. A text for which no step is wanted is held back. Its KV cache stays until others
need the room.

vLLM may also draft by a method of its own. Where a text may be decoded without a draft from outside, its step judges
what vLLM drafted after the step before.

vLLM's engine core asks the workers after each step what they propose: a round trip between processes, 0.4 ms on a CPU.
Without a method of vLLM they propose nothing, so the executors here leave that out.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.executor import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from specpair.speculation.acceptance.strategies import Strategy
from verifier_server.engine.external_cores.core import CoreRequest
from verifier_server.engine.vllm.plugins import KEY, NO_TOKEN, StepReport

_HELD = 1 << 60  # a step that never comes


class _NoProposals:
    def take_draft_token_ids(self) -> None:
        """The workers propose nothing."""


class WorkerProcesses(_NoProposals, MultiprocExecutor):  # type: ignore[misc]
    """Workers in separate processes."""


class WorkerInCore(_NoProposals, UniProcExecutor):  # type: ignore[misc]
    """One worker in the engine-core process."""


def executor_for(config: Any) -> type[Executor]:
    """The executor class for vLLM's configuration; vLLM's, if this module has none, or if vLLM drafts, too."""
    own: type[Executor] = Executor.get_class(config)
    if config.speculative_config.method != "custom_class":
        return own
    return {MultiprocExecutor: WorkerProcesses, UniProcExecutor: WorkerInCore}.get(own, own)


class DraftScheduler(Scheduler):  # type: ignore[misc]
    """The scheduler in the engine core."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._wanted: dict[str, CoreRequest] = {}  # by id of the request
        self._own: dict[str, tuple[int, list[int]]] = {}  # vLLM's own draft, and after how many tokens it follows
        self._judges_own: set[str] = set()  # whose step under way judges a draft of vLLM
        self._began = 0.0  # when the latest step was planned
        self._preempted = 0  # as in `CoreStep`
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()

    def add_request(self, request: Request) -> None:
        """Add a request, or replace the limits of an earlier one, which may have ended meanwhile."""
        sent = request.sampling_params.extra_args[KEY]
        wanted, name = CoreRequest(*sent["wanted"]), sent.get("of", request.request_id)
        if name == request.request_id:
            super().add_request(request)
        if name in self.requests:
            self._wanted[name] = wanted

    def schedule(self, *arguments: Any, **named: Any) -> SchedulerOutput:
        self._began = time.perf_counter()
        own = set[str]()
        for request in self.running:
            if self._decodes(request):
                drafts, request.next_decode_eligible_step = [], 0
            else:
                drafts = self._drafts(request)
                request.next_decode_eligible_step = 0 if self._runs(request) else _HELD
            if not drafts and request.request_id in self._own:
                drafts = self._own_drafts(request)
                own.add(request.request_id)
            request.spec_token_ids = drafts
        preempted = [each for each in self.waiting if not self._runs(each)]
        if preempted:
            self.waiting.remove_requests(preempted)
        planned = super().schedule(*arguments, **named)
        self._judges_own |= own & planned.num_scheduled_tokens.keys()
        for request in reversed(preempted):
            self.waiting.prepend_request(request)
        if not planned.total_num_scheduled_tokens and len(self.waiting) > len(preempted):
            self._make_room()
        return planned

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        if not all(model_runner_output.sampled_token_ids):
            self._end_unjudged(model_runner_output)
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        fed, judged = scheduler_output.num_scheduled_tokens, scheduler_output.scheduled_spec_decode_tokens
        seconds = time.perf_counter() - self._began
        for client in outputs.values():
            read = [(each.request_id, fed.get(each.request_id, 0)) for each in client.outputs]
            others = {name: self._read(name, judged.get(name, []), tokens) for name, tokens in read if tokens != 1}
            for first in client.outputs[:1]:
                told = StepReport(seconds, len(fed), self._preempted, others)
                first.kv_transfer_params = (first.kv_transfer_params or {}) | {KEY: told}
                self._preempted = 0
        self._judges_own.difference_update(fed)
        return outputs

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Keep what vLLM drafts by itself, for steps that may be run without a draft from outside."""
        for name, ids in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True):
            if name in self._wanted and ids:
                self._own[name] = (self.requests[name].num_tokens, ids)

    def has_requests(self) -> bool:
        """Whether there is a step to run; else the engine core sleeps until something arrives.

        That a text has ended is no reason: vLLM would run an empty step to tell its workers, which the next text would
        have to wait for. They are told with the next step.
        """
        if self.connector is not None or self.ec_connector is not None:
            return bool(super().has_requests())
        return bool(self.kv_holding_waiting) or any(
            self._decodes(each) or self._runs(each) for queue in (self.running, self.waiting) for each in queue
        )

    def _preempt_request(self, *arguments: Any, **named: Any) -> None:
        self._preempted += 1
        super()._preempt_request(*arguments, **named)

    def _free_request(self, request: Request, *arguments: Any, **named: Any) -> Any:
        self._wanted.pop(request.request_id, None)
        self._own.pop(request.request_id, None)
        return super()._free_request(request, *arguments, **named)

    def _end_unjudged(self, given: ModelRunnerOutput) -> None:
        """Have vLLM end, with an error, the texts that the workers could not judge."""
        for name, index in given.req_id_to_index.items():
            request = self.requests.get(name)
            if request is not None and not request.is_prefill_chunk and not given.sampled_token_ids[index]:
                self.grammar_compile_error_reqs.add(name)

    def _decodes(self, request: Request) -> bool:
        """Whether the next step of a request has no draft. A quick test, for most steps."""
        return (
            not request.num_in_flight_tokens
            and not request.is_prefill_chunk
            and (wanted := self._wanted.get(request.request_id)) is not None
            and wanted.decodes(request.num_tokens)
        )

    def _runs(self, request: Request) -> bool:
        """Whether a step may run for a request; one that reads its prompt is not interrupted."""
        if request.is_prefill_chunk or request.status == RequestStatus.WAITING:
            return True
        in_flight = request.num_in_flight_tokens > 0  # with pipeline parallelism, of an earlier step
        return not in_flight and self._wanted[request.request_id].wants_step(request.all_token_ids, request.num_tokens)

    def _drafts(self, request: Request) -> list[int]:
        if request.is_prefill_chunk or request.num_in_flight_tokens:
            return []
        total = request.num_tokens
        wanted = self._wanted[request.request_id]
        most = min(self.num_spec_tokens, self.max_model_len - total - 1)
        return wanted.tail(request.all_token_ids, total)[: max(0, most)]

    def _own_drafts(self, request: Request) -> list[int]:
        """The draft by vLLM, as far as the text may be decoded without a draft from outside, and does not depend on
        it."""
        if not Strategy(request.sampling_params.extra_args[KEY]["rule"][0]).extends:
            return []
        after, ids = self._own[request.request_id]
        total = request.num_tokens
        if after != total or request.is_prefill_chunk or request.num_in_flight_tokens:
            return []
        return ids[: max(0, min(self._wanted[request.request_id].free, self.max_model_len) - total - 1)]

    def _read(self, name: str, judged: list[int], tokens: int) -> tuple[list[int], int, int]:
        """A request's entry in the step's report. `tokens`: read, `judged` among them.

        vLLM pads a request's first step with placeholders, where its cache holds all tokens but the last one.
        """
        own = name in self._judges_own or NO_TOKEN in judged[:1]
        return ([], tokens, len(judged)) if own else (judged, tokens, 0)

    def _make_room(self) -> None:
        """Preempt a paused text if another text waits for its memory."""
        held: Iterable[Request] = (each for each in reversed(self.running) if not self._runs(each))
        if (victim := next(iter(held), None)) is not None:
            self.running.remove(victim)
            self._preempt_request(victim, time.monotonic())


def _end_with_parent() -> None:
    """End the engine core and its workers when the verifier has died, which vLLM's core does not notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
