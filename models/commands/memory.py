"""Whether a model that is not fetched yet fits into the memory of the machine that is to run it.

A full disk ends a pull, as nothing can be fetched onto it. Too little memory does not: more may be free later, the
folder may be another machine's, and llama.cpp reads what does not fit from the disk, slowly. So `models pull` warns, as
tools do in which a model is chosen from a list. Where a model is fetched to be loaded at once, too little memory is an
error, as in those that load on demand; a model that was pulled by name is loaded whatever the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.commands.finding import on_hub
from models.hub.cache import HubFile, Listing
from models.hub.errors import BadHead
from models.hub.fitting import instead
from models.hub.names import ModelName
from models.hub.repository import Hub
from specpair.counted import sized
from specpair.engines.load_options import FreeMemory

USUAL_CONTEXT = 4096  # tokens, at most, that engines take without being told
_PLENTY = 4  # a model with a text of the usual context takes at most as many times the bytes of its files


@dataclass(frozen=True)
class Load:
    """How a model is to be loaded. `context`: tokens of each text; None: the engine's usual ones."""

    room: FreeMemory
    context: int | None = None
    slots: int = 1


def shortage(name: ModelName, hub: Hub, load: Load, listing: Listing, files: Sequence[HubFile]) -> str | None:
    """Why a model of the hub does not fit, with the tags that would, in words that further advice follows; None: it
    fits, or its head cannot be read, so that it is for the engine to tell. Heads are asked for only where it is close.

    Raises HubError if the hub cannot be asked.
    """
    room = load.room
    usual = (load.context or USUAL_CONTEXT) * load.slots <= USUAL_CONTEXT
    if usual and _PLENTY * sum(file.size for file in files) <= room.free:
        return None
    try:
        model = on_hub(name, hub, listing, files)
    except BadHead:
        return None
    context = load.context or min(model.context or USUAL_CONTEXT, USUAL_CONTEXT)
    weights = model.weight_bytes if room.weight is None else model.parameters * room.weight
    cache = load.slots * context * model.kv_numbers * room.cached
    if weights + cache <= room.free:
        return None
    others = instead(listing, room.free - cache) if room.weight is None else ""
    if weights < room.free:
        others += "lower the context; "
    return (
        f"{name}: {sized(weights)} of weights and {sized(cache)} of KV cache for {context:,} tokens are more than the "
        f"{sized(room.free)} of memory that are free: {others}"
    )
