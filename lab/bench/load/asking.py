"""Asks a side what a job says, and makes a record of each request."""

from collections.abc import Callable
from dataclasses import dataclass

from lab.bench.endpoint.client import EndpointClient, Exchange
from lab.bench.endpoint.requests import Abilities, body_of
from lab.bench.endpoint.side import Side
from lab.bench.errors import BadSide
from lab.bench.load.jobs import Job, PreparedCase
from lab.bench.records import MeasuredRequest, RequestFailure, hash_of

_SEEDS = 2**53


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Asks a side for the jobs of one stretch.

    `began`: the moment by the client's clock at which the run began.
    `salt`: keeps prompts apart from those of other stretches in the endpoint's cache.
    `keeps_texts`: whether records have the texts, or only their hashes.
    """

    side: Side
    client: EndpointClient
    abilities: Abilities
    prepared: PreparedCase
    repetition: int
    stretch: int
    seed: int
    began: float
    salt: str
    keeps_texts: bool

    async def ask(self, job: Job, scheduled: float, record: Callable[[MeasuredRequest], None]) -> None:
        """Ask for a job, and record each of its requests as soon as it is over.

        `scheduled`: seconds since the run began.

        Raises BadSide where no endpoint answers any more.
        """
        case, prepared = self.prepared.case, self.prepared
        prompt = case.prompts[job.prompt]
        seed = case.sampling.seed
        if seed is None:
            seed = (self.seed + max(0, self.repetition) * len(prepared.jobs) + job.number) % _SEEDS
        answers: tuple[str, ...] = ()
        for turn, index in enumerate(job.indices):
            body = body_of(
                case,
                prompt,
                self.abilities,
                self.side.extra,
                api=prepared.api,
                text=prepared.text_of(job),
                answers=answers,
                max_tokens=job.max_tokens,
                seed=seed,
                salt=self.salt if case.cache == "warm" else f"{self.salt}-{job.number}",
            )
            exchange = await self.client.ask(prepared.api, body)
            if exchange.failure is not None and exchange.failure.kind == "unreachable":
                raise BadSide(f"{self.side.name} is gone: {exchange.failure.message}")
            expected = prompt.answer if index == job.indices[-1] else None
            made = self._record(exchange, index, prompt.name or str(job.prompt), seed, scheduled, expected)
            record(made)
            if made.failure is not None:
                self._skip(made, job.indices[turn + 1 :], record)
                return
            answers += (exchange.reply.text,)
            scheduled = made.started + made.ended

    def _record(
        self, exchange: Exchange, index: int, prompt: str, seed: int, scheduled: float, expected: str | None
    ) -> MeasuredRequest:
        reply, usage = exchange.reply, exchange.reply.usage or {}
        text = reply.text
        return MeasuredRequest(
            side=self.side.name,
            case=self.prepared.case.name,
            repetition=self.repetition,
            index=index,
            stretch=self.stretch,
            prompt=prompt,
            seed=seed,
            scheduled=round(scheduled, 6),
            started=round(exchange.started - self.began, 6),
            chunks=exchange.chunks,
            ended=exchange.ended,
            tokens_in=usage.get("prompt_tokens"),
            tokens_out=usage.get("completion_tokens"),
            cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            finish=reply.finish,
            text=text if self.keeps_texts else None,
            text_hash=hash_of(text),
            expected=expected,
            speculation=reply.speculation,
            failure=exchange.failure,
        )

    def _skip(self, failed: MeasuredRequest, indices: range, record: Callable[[MeasuredRequest], None]) -> None:
        """Record the turns behind one that failed."""
        for index in indices:
            skipped = RequestFailure(kind="skipped", message="an earlier turn of the conversation failed")
            now = failed.started + failed.ended
            record(
                MeasuredRequest(
                    side=failed.side,
                    case=failed.case,
                    repetition=failed.repetition,
                    index=index,
                    stretch=failed.stretch,
                    prompt=failed.prompt,
                    seed=failed.seed,
                    scheduled=now,
                    started=now,
                    ended=0.0,
                    failure=skipped,
                )
            )
