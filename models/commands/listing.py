"""What `models list` and `suggest` tell of the models in the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from models.commands.described import Described
from models.commands.finding import Begun, Cached
from models.commands.pairing import judge
from models.hub.errors import BadHead
from specpair.counted import sized


class Running(NamedTuple):
    """What a running verifier serves. `vocabulary`: the hash of its text tokens.
    `differs`: why the model in a file does not pair with it; None: it does."""

    name: str
    vocabulary: str
    differs: Callable[[Path], str | None]


def listed(cached: Cached, served: Running | None) -> dict[str, Any]:
    """A model of the cache, for programs."""
    known: dict[str, Any] = {"name": str(cached.name), "bytes": cached.size, "path": str(cached.path)}
    try:
        model = cached.described()
        told = {"architecture": model.architecture, "layers": model.kind, "ids": model.ids}
        drafts = None if served is None else _pairs(cached, model, served)
        return known | {"quantization": model.quantization, **told, "drafts": drafts}
    except (BadHead, OSError):
        return known | dict.fromkeys(("quantization", "architecture", "layers", "ids", "drafts"))


def of_begun(found: Begun) -> dict[str, Any]:
    """A model that is not in the cache whole, for programs."""
    known: dict[str, Any] = {"name": str(found.name), "bytes": found.here, "whole_bytes": found.size}
    return known | dict.fromkeys(("path", "quantization", "architecture", "layers", "ids", "drafts"))


def kind_told(listed: dict[str, Any]) -> str:
    """What kind of model it is, or what is wrong with it."""
    if "whole_bytes" in listed:
        return f"begun, of {sized(listed['whole_bytes'])}: pull goes on with it"
    return (
        "damaged, or another user's"
        if listed["architecture"] is None
        else f"{listed['architecture']}, {listed['layers']}"
    )


def ids_told(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _pairs(cached: Cached, model: Described, served: Running) -> bool:
    """Whether a model drafts for what a verifier serves: of a folder, by its tokens alone. Raises BadHead."""
    if cached.path.stem == served.name:  # a target does not draft for itself
        return False
    if cached.is_folder:
        return model.vocabulary is not None and model.vocabulary.ordinary == served.vocabulary
    return served.differs(cached.path) is None


def known_of(cached: Cached, target: Described | None, served: Running | None) -> str | None:
    """What is known of a model in the cache as a drafter; None: it does not pair, or is no smaller."""
    try:
        model = cached.described()
        if target is None:
            return "the same vocabulary" if served and _pairs(cached, model, served) else None
        verdict = judge(model, target)
    except (BadHead, OSError):
        return None
    return f"reads {verdict.share:.2f} of the target's bytes" if verdict.pairs and verdict.share < 1 else None
