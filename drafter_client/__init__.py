"""The drafter: a small model on this machine guesses ahead, a verifier elsewhere says which guesses stand.

    from drafter_client import Options, Pair, Tokens

    with Pair("http://bigbox:8000") as pair:
        for event in pair.generate("def main():", Options(max_tokens=40)):
            if isinstance(event, Tokens):
                print(event.text, end="", flush=True)

`AsyncPair` is the same for asyncio. What goes wrong is a `DrafterError`, what the verifier refuses a `SpecPairError`,
and a failing engine here a `BackendError`.
"""

from backends.contract import BackendError, LoadOptions
from drafter_client.asynchronous import AsyncGeneration, AsyncPair
from drafter_client.errors import DrafterError
from drafter_client.generation import Event, Finished, Generation, Token, Tokens
from drafter_client.options import Mode, Options
from drafter_client.origin import Origin
from drafter_client.pair import Pair
from drafter_client.sources import Custom, DraftModel, Lookup, Source
from drafter_client.stats import Stats
from speculation.acceptance import Strategy
from speculation.errors import SpecPairError

__all__ = [
    "AsyncGeneration",
    "AsyncPair",
    "BackendError",
    "Custom",
    "DraftModel",
    "DrafterError",
    "Event",
    "Finished",
    "Generation",
    "LoadOptions",
    "Lookup",
    "Mode",
    "Options",
    "Origin",
    "Pair",
    "Source",
    "SpecPairError",
    "Stats",
    "Strategy",
    "Token",
    "Tokens",
]
