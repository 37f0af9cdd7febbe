"""The drafter: a small model on this machine drafts tokens, and a verifier on another machine accepts or rejects them.

    from drafter_client import Options, Pair, Tokens

    with Pair("http://bigbox:8000") as pair:
        for event in pair.generate("def main():", Options(max_tokens=40)):
            if isinstance(event, Tokens):
                print(event.text, end="", flush=True)

`AsyncPair` is the same for asyncio. Errors on this machine are `DrafterError`s (`drafter_client.errors` lists them), a
request that the verifier refuses raises a `SpecPairError` (`specpair.protocol.errors`), and a failing engine on this
machine raises a `BackendError`.

The source of drafts is a `DraftModel`, a `Lookup`, or a `Drafter` of your own, wrapped in `Custom`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from specpair.extras import extras_named
from specpair.siblings import import_siblings

import_siblings()
if TYPE_CHECKING:
    from drafter_client.async_pair import AsyncGeneration, AsyncPair
    from drafter_client.draft_sources import Custom, DraftModel, Lookup, Source
    from drafter_client.errors import DrafterError
    from drafter_client.generation.generation import Event, Finished, Generation, Token, Tokens
    from drafter_client.http.outages import Outage
    from drafter_client.metrics.statistics import Stats
    from drafter_client.modes.memory import memory_file
    from drafter_client.options import Mode, Options
    from drafter_client.pair import Observer, Pair
    from drafter_client.trace.writer import TraceFolder
    from specpair.drafters.base import Drafter, Expansion
    from specpair.engines.errors import BackendError
    from specpair.engines.load_options import LoadOptions
    from specpair.engines.vocabulary import Vocabulary
    from specpair.protocol.errors import SpecPairError
    from specpair.protocol.service_responses import ModelInfo
    from specpair.speculation.acceptance.strategies import Strategy
    from specpair.speculation.acceptance.token_source import TokenSource
    from specpair.speculation.drafts.tree import Proposal
    from specpair.speculation.sampling.sampling import Sampling

__all__ = [
    "AsyncGeneration",
    "AsyncPair",
    "BackendError",
    "Custom",
    "DraftModel",
    "Drafter",
    "DrafterError",
    "Event",
    "Expansion",
    "Finished",
    "Generation",
    "LoadOptions",
    "Lookup",
    "Mode",
    "ModelInfo",
    "Observer",
    "Options",
    "Outage",
    "Pair",
    "Proposal",
    "Sampling",
    "Source",
    "SpecPairError",
    "Stats",
    "Strategy",
    "Token",
    "TokenSource",
    "Tokens",
    "TraceFolder",
    "Vocabulary",
    "memory_file",
]

# Each name is imported on first use, so that a command of this package starts before the rest is imported.
_HOMES = {
    "AsyncGeneration": "drafter_client.async_pair",
    "AsyncPair": "drafter_client.async_pair",
    "BackendError": "specpair.engines.errors",
    "Custom": "drafter_client.draft_sources",
    "DraftModel": "drafter_client.draft_sources",
    "Drafter": "specpair.drafters.base",
    "DrafterError": "drafter_client.errors",
    "Event": "drafter_client.generation.generation",
    "Expansion": "specpair.drafters.base",
    "Finished": "drafter_client.generation.generation",
    "Generation": "drafter_client.generation.generation",
    "LoadOptions": "specpair.engines.load_options",
    "Lookup": "drafter_client.draft_sources",
    "Mode": "drafter_client.options",
    "ModelInfo": "specpair.protocol.service_responses",
    "Options": "drafter_client.options",
    "TokenSource": "specpair.speculation.acceptance.token_source",
    "Observer": "drafter_client.pair",
    "Outage": "drafter_client.http.outages",
    "Pair": "drafter_client.pair",
    "Proposal": "specpair.speculation.drafts.tree",
    "Sampling": "specpair.speculation.sampling.sampling",
    "Source": "drafter_client.draft_sources",
    "SpecPairError": "specpair.protocol.errors",
    "Stats": "drafter_client.metrics.statistics",
    "Strategy": "specpair.speculation.acceptance.strategies",
    "Token": "drafter_client.generation.generation",
    "Tokens": "drafter_client.generation.generation",
    "TraceFolder": "drafter_client.trace.writer",
    "Vocabulary": "specpair.engines.vocabulary",
    "memory_file": "drafter_client.modes.memory",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with extras_named():
            return getattr(import_module(_HOMES[name]), name)
