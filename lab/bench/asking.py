"""Probes what an endpoint accepts, by requests for one token before the measurement, and makes request bodies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from lab.bench.case import Api, Case, Prompt
from lab.bench.client import EndpointClient, Exchange
from lab.bench.errors import BadSide
from lab.bench.records import RequestFailure, Side

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ProbedSide:
    """A side that answers, and the requests that it accepts.

    `side`: with the model to ask for, and what the endpoint tells of itself.
    `apis`: those that answered, with what the others said in `refusals`.
    `takes`: of the fields `ignore_eos` and `cache_salt`, those that it does not refuse.
    `cold`: further fields by which a prompt is read anew.
    """

    side: Side
    client: EndpointClient
    apis: frozenset[Api]
    refusals: dict[str, str]
    takes: frozenset[str]
    cold: Json


def body_of(
    case: Case,
    prompt: Prompt,
    asked: ProbedSide,
    *,
    api: Api,
    text: str | None,
    answers: tuple[str, ...] = (),
    max_tokens: int,
    seed: int,
    salt: str = "",
) -> Json:
    """The body of a request. The side's `extra` overrides all other fields.

    `text`: of a prompt that is one, at the length that is asked for.
    `answers`: those to the turns before.
    `salt`: requests with another one share nothing in the endpoint's cache.
    """
    said: Json = {"model": asked.side.model}
    if api == "chat":
        said["messages"] = messages_of(case, prompt, text, answers)
    else:
        said["prompt"] = text
    said |= {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    said |= case.sampling.fields() | {"seed": seed}
    if case.ignore_eos and "ignore_eos" in asked.takes:
        said["ignore_eos"] = True
    if salt and "cache_salt" in asked.takes:
        said["cache_salt"] = salt
    if case.cache == "cold" and prompt.turns is None:
        said |= asked.cold
    return {**said, **case.body, **prompt.body, **asked.side.extra}


def messages_of(case: Case, prompt: Prompt, text: str | None, answers: tuple[str, ...]) -> list[Json]:
    """The messages of a chat; of a conversation, the messages up to the turn after `answers`."""
    head = [{"role": "system", "content": case.system}] if case.system is not None else []
    if prompt.messages is not None:
        return [*head, *prompt.messages]
    if prompt.turns is None:
        return [*head, {"role": "user", "content": text}]
    found: list[Json] = [*head]
    for turn, answer in zip(prompt.turns, answers, strict=False):
        found += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*found, {"role": "user", "content": prompt.turns[len(answers)]}]


_ASKED: dict[Api, Json] = {
    "completions": {"prompt": "1, 2, 3,"},
    "chat": {"messages": [{"role": "user", "content": "Count to three."}]},
}
_OPTIONAL = {"ignore_eos": True, "cache_salt": "a"}
_COLD = {"llamacpp": {"cache_prompt": False}}  # by who owns the model
_NOT_THERE = (404, 405, 501)


async def probe(side: Side, client: EndpointClient) -> ProbedSide | None:
    """Probe a side's endpoint; None: it refuses the side's `extra`, and the side is optional. Raises BadSide."""
    model, server = await _model(side, client)
    found: dict[Api, Exchange] = {api: await _asked(client, api, model, side.extra) for api in _ASKED}
    failures: dict[Api, RequestFailure] = {api: each.failure for api, each in found.items() if each.failure is not None}
    apis = [api for api in found if api not in failures]
    if not apis:
        if side.may_lack and all(each.status == 400 for each in failures.values()):
            return None
        raise _complaint(side, [*failures.values()])
    if all(found[api].reply.usage is None for api in apis):
        raise BadSide(
            f"{side.name} counts no tokens at the end of a stream (stream_options.include_usage), which figures come "
            "from: measure an endpoint that does"
        )
    takes = [
        name
        for name, value in _OPTIONAL.items()
        if (await _asked(client, apis[0], model, {name: value, **side.extra})).failure is None
    ]
    named = found[apis[0]].headers.get("server")
    return ProbedSide(
        side=replace(side, model=model, server=server | ({"server": named} if named else {}), may_lack=False),
        client=client,
        apis=frozenset(apis),
        refusals={api: each.message for api, each in failures.items()},
        takes=frozenset(takes),
        cold=_COLD.get(server.get("owned_by", ""), {}),
    )


def chosen_api(case: Case, sides: Sequence[ProbedSide]) -> Api:
    """The API by which all sides are asked for a case: chats, unless it wants completions, or does without chats and a
    side has none. Raises BadSide, which names a side that lacks what the case needs."""
    takes: list[Api] = ["completions"] if case.api == "completions" else ["chat"]
    if case.api == "any" and not case.needs_chat:
        takes.append("completions")
    for api in takes:
        if all(api in each.apis for each in sides):
            return api
    last = takes[-1]
    lacking = next(each for each in sides if last not in each.apis)
    raise BadSide(
        f"the case {case.name} needs {'chats' if last == 'chat' else last}, and {lacking.side.name} has none "
        f"({lacking.refusals[last]}): choose other cases with --case, or serve a model that has them"
    )


async def _model(side: Side, client: EndpointClient) -> tuple[str, dict[str, str]]:
    """The model to request, and the endpoint's entry for it."""
    try:
        response = await client.get("/models")
        listed = response.json()["data"] if response.status_code == 200 else []
        models = {str(each["id"]): each for each in listed}
    except httpx.HTTPError as error:
        raise BadSide(
            f"no endpoint answers for {side.name} at {side.url} ({error or type(error).__name__}): "
            "is it running, and is the address right?"
        ) from None
    except (ValueError, KeyError, TypeError):
        models = {}
    if response.status_code in (401, 403):
        raise BadSide(
            f"{side.name} requires another key ({side.url}): name the variable of its key by --key {side.name}=…"
        )
    if side.model is None and not models:
        raise BadSide(f"{side.name} lists no models at {side.url}/models: name one with --model, or mend the address")
    if side.model is not None and models and side.model not in models:
        raise BadSide(f"{side.name} has no model {side.model!r}, it lists {', '.join(models)}: choose with --model")
    model = side.model or next(iter(models))
    owner = models.get(model, {}).get("owned_by")
    return model, {"owned_by": str(owner)} if owner else {}


async def _asked(client: EndpointClient, api: Api, model: str, further: Json) -> Exchange:
    common = {"model": model, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}
    return await client.ask(api, {**common, "temperature": 0, **_ASKED[api], **further})


def _complaint(side: Side, failures: list[RequestFailure]) -> BadSide:
    """The reason why a side answers neither completions nor chats."""
    if all(each.status in _NOT_THERE for each in failures):
        return BadSide(
            f"{side.name} has neither {side.url}/completions nor {side.url}/chat/completions (status "
            f"{failures[0].status}): mend the address, it mostly ends in /v1"
        )
    told = [each for each in failures if each.status not in _NOT_THERE]
    return BadSide(f"{side.name} refuses a text of one token at {side.url}: {told[0].message}")
