"""The models of the cache as `models list` shows them, and which of them draft for a target."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from models.commands.description import ModelDescription, judge
from models.commands.finding import CachedModel, PartialModel
from models.commands.showing import print_table
from models.errors import BadHead
from specpair.numbers import sized


class ServedModel(NamedTuple):
    """A running verifier's model. `vocabulary`: the hash of its text tokens. `differs`: why a file's model does not
    pair with it; None: it does."""

    name: str
    vocabulary: str
    differs: Callable[[Path], str | None]


_TOLD = ("quantization", "architecture", "layers", "ids", "head", "drafts")  # what the begin of a model's file tells


def listed(found: CachedModel | PartialModel, served: ServedModel | None) -> dict[str, Any]:
    """A model of the cache, whole or in part, for programs."""
    if isinstance(found, PartialModel):
        known = {"name": str(found.name), "bytes": found.here, "whole_bytes": found.size, "path": None}
        return known | dict.fromkeys(_TOLD)
    known = {"name": str(found.name), "bytes": found.size, "path": str(found.path)}
    try:
        model = found.described()
        drafts = None if served is None else _pairs(found, model, served)
        head = None if model.head is None else model.head.kind
        told = (model.quantization, model.architecture, model.layers.words, model.ids, head, drafts)
        return known | dict(zip(_TOLD, told, strict=True))
    except (BadHead, OSError):
        return known | dict.fromkeys(_TOLD)


def print_list(found: Sequence[dict[str, Any]], served: ServedModel | None) -> None:
    """Print what `listed` returned for each model as a table."""
    table = [["name", "size", "type", "kind", "ids", *([f"drafts for {served.name}"] if served else [])]]
    for each in found:
        if "whole_bytes" in each:
            kind = f"begun, of {sized(each['whole_bytes'])}: pull continues"
        elif each["architecture"] is None:
            kind = "damaged, or another user's"
        else:
            kind = f"{each['architecture']}, {each['layers']}{', ' + each['head'] + ' head' if each['head'] else ''}"
        ids = "-" if each["ids"] is None else f"{each['ids']:,}"
        row = [each["name"], sized(each["bytes"]), each["quantization"] or "?", kind, ids]
        table.append([*row, "yes" if each["drafts"] else "no"] if served else row)
    print_table(table)


def _pairs(cached: CachedModel, model: ModelDescription, served: ServedModel) -> bool:
    """Whether a model drafts for a verifier's model; of a folder, by its tokens alone. Raises BadHead."""
    if cached.path.stem == served.name:  # a target does not draft for itself
        return False
    if cached.is_folder:
        return model.vocabulary is not None and model.vocabulary.ordinary == served.vocabulary
    return served.differs(cached.path) is None


def pairing_of(cached: CachedModel, target: ModelDescription | None, served: ServedModel | None) -> str | None:
    """A cached model's facts as a draft model, in words; None: it does not pair, or is no smaller."""
    try:
        model = cached.described()
        if target is None:
            return "the same vocabulary" if served and _pairs(cached, model, served) else None
        verdict = judge(model, target)
    except (BadHead, OSError):
        return None
    return f"reads {verdict.share:.2f} of the target's bytes" if verdict.pairs and verdict.share < 1 else None
