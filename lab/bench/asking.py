"""Asks a side what a job says, in OpenAI's fields, and makes a record of each request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.bench.case import Api, Case, Prompt
from lab.bench.client import EndpointClient, Exchange
from lab.bench.errors import BadSide
from lab.bench.jobs import Job, PreparedCase
from lab.bench.records import MeasuredRequest, RequestFailure, hash_of
from lab.bench.sides import Side

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What an endpoint takes, as `probe` found out.

    `model`: the name to ask for.
    `apis`: those that answered, with what the others said in `refusals`.
    `takes`: of the fields `ignore_eos` and `cache_salt`, those that it does not refuse.
    `cold`: further fields by which a prompt is read anew.
    `server`: what it tells of itself.
    """

    model: str
    apis: frozenset[Api]
    refusals: dict[str, str]
    takes: frozenset[str]
    cold: Json
    server: dict[str, str]


def body_of(
    case: Case,
    prompt: Prompt,
    abilities: Abilities,
    extra: Json,
    *,
    api: Api,
    text: str | None,
    answers: tuple[str, ...] = (),
    max_tokens: int,
    seed: int | None,
    salt: str = "",
) -> Json:
    """The body of a request.

    `extra`: of the side; it comes before all else.
    `text`: of a prompt that is one, at the length that is asked for.
    `answers`: those to the turns before.
    `salt`: requests with another one share nothing in the endpoint's cache.
    """
    said: Json = {"model": abilities.model}
    if api == "chat":
        said["messages"] = messages_of(case, prompt, text, answers)
    else:
        said["prompt"] = text
    said |= {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    said |= case.sampling.fields()
    if seed is not None:
        said["seed"] = seed
    if case.ignore_eos and "ignore_eos" in abilities.takes:
        said["ignore_eos"] = True
    if salt and "cache_salt" in abilities.takes:
        said["cache_salt"] = salt
    if case.cache == "cold" and prompt.turns is None:
        said |= abilities.cold
    return {**said, **case.body, **prompt.body, **extra}


def messages_of(case: Case, prompt: Prompt, text: str | None, answers: tuple[str, ...]) -> list[Json]:
    """The messages of a chat: of a conversation, those up to the turn after `answers`."""
    head = [{"role": "system", "content": case.system}] if case.system is not None else []
    if prompt.messages is not None:
        return [*head, *prompt.messages]
    if prompt.turns is None:
        return [*head, {"role": "user", "content": text}]
    found: list[Json] = [*head]
    for turn, answer in zip(prompt.turns, answers, strict=False):
        found += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*found, {"role": "user", "content": prompt.turns[len(answers)]}]


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
            made = self._record(exchange, index, prompt.name or str(job.prompt), seed, scheduled)
            record(made)
            if made.failure is not None:
                self._skip(made, job.indices[turn + 1 :], record)
                return
            answers += (exchange.reply.text,)
            scheduled = made.started + made.ended

    def _record(self, exchange: Exchange, index: int, prompt: str, seed: int, scheduled: float) -> MeasuredRequest:
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
