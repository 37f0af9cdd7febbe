"""A core over vLLM's engine core, which runs in its own process."""

import time
from collections.abc import Collection, Sequence
from typing import Any

from specpair.options.option import options_of
from specpair.speculation.sampling.distribution import DIGITS, TokenLogprobs
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.engine.external_cores.core import CoreLost, CoreOutput, CoreRequest, CoreStep
from verifier_server.engine.vllm.plugins import KEY, NO_TOKEN, StepReport
from verifier_server.sessions import Session

NO_STEP = CoreStep([], 0, 0.0, 0)
_USUAL = {name: getattr(Sampling(), name) for name in options_of(Sampling)}


class VllmCore:
    """A `Core` over vLLM's client of its engine core."""

    def __init__(self, client: Any) -> None:
        """`client`: an `AsyncMPClient` of vLLM."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.exceptions import EngineDeadError

        self.client, self._dead = client, EngineDeadError
        self._request, self._params = EngineCoreRequest, SamplingParams
        self._updates = 0

    async def begin(self, name: str, session: Session, salt: str, wanted: CoreRequest) -> None:
        rule = session.rule
        extra = {
            "wanted": list(wanted),
            "rule": [str(rule.strategy), _plain_settings(rule.sampling), rule.threshold, session.prompt_len],
        }
        most = session.limit - len(session.tokens)
        await self._send(
            name, list(session.tokens), salt, extra, most, ends=session.ends, logprobs=session.spec.logprobs
        )

    async def update(self, name: str, wanted: CoreRequest) -> None:
        self._updates += 1
        await self._send(f"{name}/{self._updates}", [0], "", {"of": name, "wanted": list(wanted)}, 1)

    async def forget(self, names: Sequence[str]) -> None:
        try:
            await self.client.abort_requests_async(list(names))
        except self._dead as error:
            raise _lost() from error

    async def outputs(self) -> list[CoreOutput]:
        try:
            brought = await self.client.get_output_async()
        except self._dead as error:
            raise _lost() from error
        return [
            CoreOutput(
                each.request_id,
                each.new_token_ids,
                step,
                None if each.prefill_stats is None else each.prefill_stats.num_cached_tokens,
                each.finish_reason is not None,
                None if each.new_logprobs is None else _logprobs(each.new_logprobs),
            )
            for each, step in zip(brought.outputs, _steps(brought.outputs), strict=True)
        ]

    async def close(self) -> None:
        self.client.shutdown()
        self.client.resources.ctx.destroy(linger=0)  # vLLM leaves its sockets' context open

    async def _send(
        self,
        name: str,
        ids: list[int],
        salt: str,
        extra: dict[str, Any],
        most: int,
        *,
        ends: Collection[int] = (),
        logprobs: int | None = None,
    ) -> None:
        # Temperature 0 spares vLLM what its own sampler would prepare.
        params = self._params(
            temperature=0.0,
            max_tokens=most,
            ignore_eos=True,
            stop_token_ids=sorted(ends),
            detokenize=False,
            logprobs=logprobs,
            extra_args={KEY: extra},
        )
        request = self._request(
            request_id=name,
            prompt_token_ids=ids,
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=salt or None,
            data_parallel_rank=None,
        )
        try:
            await self.client.add_request_async(request)
        except self._dead as error:
            raise _lost() from error


def _lost() -> CoreLost:
    return CoreLost("vLLM's engine core has ended: see the verifier's log, and restart it")


def _steps(outputs: Sequence[Any]) -> list[CoreStep]:
    """The step report of each of these outputs."""
    if not outputs or KEY not in (params := outputs[0].kv_transfer_params or {}):
        return [NO_STEP] * len(outputs)
    told = StepReport(*params[KEY])
    read = [told.others.get(each.request_id, ([], 1, 0)) for each in outputs]
    return [
        CoreStep(draft, tokens, told.seconds, told.texts, 0 if at else told.preempted, own)
        for at, (draft, tokens, own) in enumerate(read)
    ]


def _logprobs(told: Any) -> list[TokenLogprobs | None]:
    """The log probabilities of a text's tokens, read from the table of `logprobs_table`."""
    rows = zip(told.logprob_token_ids.tolist(), told.logprobs.tolist(), strict=True)
    return [
        TokenLogprobs(ids[0], round(values[0], DIGITS), [(i, round(v, DIGITS)) for i, v in pairs if i != NO_TOKEN])
        for ids, values in rows
        for pairs in [zip(ids[1:], values[1:], strict=True)]
    ]


def _plain_settings(sampling: Sampling) -> dict[str, Any]:
    """The settings that differ from the defaults, as plain values."""
    given = {name: getattr(sampling, name) for name in _USUAL}
    return {name: value for name, value in given.items() if value != _USUAL[name]}
