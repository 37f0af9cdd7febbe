"""Requests for server-side drafting, and a draft model that is right at some positions."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

from backends.scripted import Script, ScriptedBackend
from specpair.engines.errors import OutOfRoom
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.support import PROMPT_IDS
from verifier_server.generation.server_drafting import ServerDrafting

GREEDY, WARM = Sampling(seed=4), Sampling(seed=5, temperature=0.8)
FILTERED = Sampling(seed=6, temperature=1.2, top_k=20, top_p=0.9)
LENGTH = 40
_SALTS = count()


def half_right(slots: int = 2, **limits: Any) -> ScriptedBackend:
    """A draft model that agrees with the target at 60 % of all positions."""
    return ScriptedBackend(Script(seed=SCRIPT.seed, agreement=0.6), slots=slots, **limits)


def slots_free(live: LiveServer) -> bool:
    """Whether the draft model could begin as many texts as it has slots."""
    drafting = live.service.loader.loaded().drafting
    assert isinstance(drafting, ServerDrafting)
    with ExitStack() as texts, suppress(OutOfRoom):
        for _ in range(drafting.draft.slots):
            texts.enter_context(drafting.draft.drafter(TextSpec()))
        return True
    return False


def body_of(sampling: Sampling, prompt: Sequence[int] = PROMPT_IDS, **options: Any) -> dict[str, Any]:
    """A request, with a salt of its own: no text is helped by earlier ones."""
    drawn = {"seed": sampling.seed, "temperature": sampling.temperature, "cache_salt": f"{next(_SALTS)}"}
    filters = {"top_k": sampling.top_k, "top_p": sampling.top_p}
    return {"prompt_ids": list(prompt), "mode": "fused", "max_tokens": LENGTH, **drawn, **filters, **options}
