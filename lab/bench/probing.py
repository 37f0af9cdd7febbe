"""Asks an endpoint what it takes, with requests for one token, before anything is measured."""

from collections.abc import Iterable
from typing import Any

import httpx

from lab.bench.asking import Abilities
from lab.bench.case import Api, Case
from lab.bench.client import EndpointClient, Exchange
from lab.bench.errors import BadSide
from lab.bench.records import RequestFailure
from lab.bench.sides import Side

Json = dict[str, Any]
_ASKED: dict[Api, Json] = {
    "completions": {"prompt": "1, 2, 3,"},
    "chat": {"messages": [{"role": "user", "content": "Count to three."}]},
}
_OPTIONAL = {"ignore_eos": True, "cache_salt": "a"}
_COLD = {"llamacpp": {"cache_prompt": False}}  # by who owns the model
_NOT_THERE = (404, 405, 501)


async def probe(side: Side, client: EndpointClient) -> Abilities | None:
    """What the endpoint of a side takes; None: it refuses the side's `extra`, and the side may lack. Raises BadSide."""
    model, server = await _model(side, client)
    found: dict[Api, Exchange] = {api: await _asked(client, api, model, side.extra) for api in _ASKED}
    apis = [api for api, exchange in found.items() if exchange.failure is None]
    refusals = {str(api): each.failure.message for api, each in found.items() if each.failure is not None}
    if not apis:
        failures = [each.failure for each in found.values() if each.failure is not None]
        if side.may_lack and all(each.status == 400 for each in failures):
            return None
        raise _complaint(side, failures)
    _check_usage(side, [found[api] for api in apis])
    takes = [
        name
        for name, value in _OPTIONAL.items()
        if (await _asked(client, apis[0], model, {name: value, **side.extra})).failure is None
    ]
    named = found[apis[0]].headers.get("server")
    return Abilities(
        model=model,
        apis=frozenset(apis),
        refusals=refusals,
        takes=frozenset(takes),
        cold=_COLD.get(server.get("owned_by", ""), {}),
        server=server | ({"server": named} if named else {}),
    )


def chosen_api(case: Case, sides: Iterable[tuple[Side, Abilities]]) -> Api:
    """The API by which all sides are asked for a case: chats, unless it wants completions, or does without chats and a
    side has none. Raises BadSide, which names a side that lacks what the case needs."""
    both = list(sides)
    takes: list[Api] = ["completions"] if case.api == "completions" else ["chat"]
    if case.api == "any" and not case.needs_chat:
        takes.append("completions")
    for api in takes:
        if all(api in abilities.apis for _, abilities in both):
            return api
    last = takes[-1]
    side, lacking = next((side, each) for side, each in both if last not in each.apis)
    raise BadSide(
        f"the case {case.name} needs {'chats' if last == 'chat' else last}, and {side.name} has none "
        f"({lacking.refusals[last]}): choose other cases with --case, or serve a model that has them"
    )


async def _model(side: Side, client: EndpointClient) -> tuple[str, dict[str, str]]:
    """The model to ask for, and what the endpoint tells of it."""
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
            f"{side.name} wants another key ({side.url}): name the variable that has it with --key {side.name}=…"
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
    """Why a side can answer neither a completion nor a chat."""
    if all(each.status in _NOT_THERE for each in failures):
        return BadSide(
            f"{side.name} has neither {side.url}/completions nor {side.url}/chat/completions (status "
            f"{failures[0].status}): mend the address, it mostly ends in /v1"
        )
    told = [each for each in failures if each.status not in _NOT_THERE]
    return BadSide(f"{side.name} refuses a text of one token at {side.url}: {told[0].message}")


def _check_usage(side: Side, exchanges: list[Exchange]) -> None:
    if all(each.reply.usage is None for each in exchanges):
        raise BadSide(
            f"{side.name} counts no tokens at the end of a stream (stream_options.include_usage), which figures come "
            "from: measure an endpoint that does"
        )
