"""Counts the tokens of prompts as an endpoint does: by `/tokenize`, or else by the usage of texts of one token."""

from typing import Any

from lab.bench.cases.case import Case, Prompt
from lab.bench.endpoint.client import EndpointClient
from lab.bench.endpoint.requests import Abilities, Api, body_of
from lab.bench.endpoint.side import Side
from lab.bench.errors import BadSide

_SHORT = "one two three"


class TokenCounter:
    """Counts the tokens that prompts of a case have at one side, with those of a chat's template."""

    def __init__(self, side: Side, client: EndpointClient, abilities: Abilities, case: Case, api: Api) -> None:
        self._side, self._client, self._abilities, self._case, self._api = side, client, abilities, case, api
        self._around: int | None = None  # tokens around the text, where there is /tokenize
        self._asks_usage = False

    async def count(self, text: str) -> int:
        """The tokens of a prompt with this text. Raises BadSide."""
        if self._around is None and not self._asks_usage:
            alone = await self._client.tokenize(_SHORT, self._abilities.model)
            self._asks_usage = alone is None
            if alone is not None:
                self._around = await self._by_usage(_SHORT) - alone
        if self._around is not None:
            alone = await self._client.tokenize(text, self._abilities.model)
            if alone is not None:
                return alone + self._around
        return await self._by_usage(text)

    async def _by_usage(self, text: str) -> int:
        body = body_of(
            self._case,
            Prompt(text=text),
            self._abilities,
            self._side.extra,
            api=self._api,
            text=text,
            max_tokens=1,
            seed=0,
        )
        exchange = await self._client.ask(self._api, body)
        count: Any = (exchange.reply.usage or {}).get("prompt_tokens")
        if exchange.failure is not None or type(count) is not int:
            why = exchange.failure.message if exchange.failure is not None else "it counts no tokens of prompts"
            raise BadSide(f"{self._side.name} does not count the prompt of the case {self._case.name}: {why}")
        return count
