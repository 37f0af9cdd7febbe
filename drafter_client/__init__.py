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
    from drafter_client.async_pair import AsyncGeneration as AsyncGeneration
    from drafter_client.async_pair import AsyncPair as AsyncPair
    from drafter_client.draft_sources import Custom as Custom
    from drafter_client.draft_sources import DraftModel as DraftModel
    from drafter_client.draft_sources import Lookup as Lookup
    from drafter_client.draft_sources import Source as Source
    from drafter_client.errors import DrafterError as DrafterError
    from drafter_client.generation.generation import Event as Event
    from drafter_client.generation.generation import Finished as Finished
    from drafter_client.generation.generation import Generation as Generation
    from drafter_client.generation.generation import Token as Token
    from drafter_client.generation.generation import Tokens as Tokens
    from drafter_client.http.outages import Outage as Outage
    from drafter_client.http.trust import Trust as Trust
    from drafter_client.modes.memory import memory_file as memory_file
    from drafter_client.options import Mode as Mode
    from drafter_client.options import Observer as Observer
    from drafter_client.options import Options as Options
    from drafter_client.options import PairKeywords as PairKeywords
    from drafter_client.pair import Pair as Pair
    from drafter_client.statistics import Stats as Stats
    from drafter_client.trace.writer import TraceFolder as TraceFolder
    from specpair.drafters.base import Drafter as Drafter
    from specpair.drafters.base import Expansion as Expansion
    from specpair.engines.errors import BackendError as BackendError
    from specpair.engines.load_options import LoadOptions as LoadOptions
    from specpair.engines.vocabulary import Vocabulary as Vocabulary
    from specpair.protocol.errors import SpecPairError as SpecPairError
    from specpair.protocol.service_responses import ModelInfo as ModelInfo
    from specpair.speculation.acceptance.strategies import Strategy as Strategy
    from specpair.speculation.acceptance.token_sources import TokenSource as TokenSource
    from specpair.speculation.drafting.tree import Proposal as Proposal
    from specpair.speculation.policy.experience import DraftingPolicy as DraftingPolicy
    from specpair.speculation.sampling.sampling import Sampling as Sampling

# Each name is imported on first use, so that a command of this package starts before the rest is imported.
_HOMES = {
    name: module
    for module, names in {
        "drafter_client.async_pair": "AsyncGeneration AsyncPair",
        "drafter_client.draft_sources": "Custom DraftModel Lookup Source",
        "drafter_client.errors": "DrafterError",
        "drafter_client.generation.generation": "Event Finished Generation Token Tokens",
        "drafter_client.http.outages": "Outage",
        "drafter_client.http.trust": "Trust",
        "drafter_client.statistics": "Stats",
        "drafter_client.modes.memory": "memory_file",
        "drafter_client.options": "Mode Observer Options PairKeywords",
        "drafter_client.pair": "Pair",
        "drafter_client.trace.writer": "TraceFolder",
        "specpair.drafters.base": "Drafter Expansion",
        "specpair.engines.errors": "BackendError",
        "specpair.engines.load_options": "LoadOptions",
        "specpair.engines.vocabulary": "Vocabulary",
        "specpair.protocol.errors": "SpecPairError",
        "specpair.protocol.service_responses": "ModelInfo",
        "specpair.speculation.acceptance.strategies": "Strategy",
        "specpair.speculation.acceptance.token_sources": "TokenSource",
        "specpair.speculation.drafting.tree": "Proposal",
        "specpair.speculation.policy.experience": "DraftingPolicy",
        "specpair.speculation.sampling.sampling": "Sampling",
    }.items()
    for name in names.split()
}
__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with extras_named():
            return getattr(import_module(_HOMES[name]), name)
