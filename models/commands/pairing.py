"""Whether two models make a pair, and what it costs, by the heads of their files alone."""

from dataclasses import dataclass

from models.commands.described import Described, ListedTokens
from specpair.engines.vocabulary import Kind


@dataclass(frozen=True)
class Verdict:
    """`difference`: why the draft model needs --translate, in words; None: the two have the same vocabulary."""

    difference: str | None
    share: float  # of the bytes that a step of the target reads, those that a step of the draft model reads

    @property
    def pairs(self) -> bool:
        return self.difference is None


def judge(draft: Described, target: Described) -> Verdict:
    """Judge a draft model for a target."""
    return Verdict(_difference(draft.vocabulary, target.vocabulary), draft.bytes_a_token / max(1, target.bytes_a_token))


def _difference(draft: ListedTokens | None, target: ListedTokens | None) -> str | None:
    """Why ids of the one are not those of the other; the rule is that of `engines.vocabulary.cannot_draft`."""
    if draft is None or target is None:
        return f"the {'draft model' if draft is None else 'target'} has no tokenizer in its files"
    if draft.begin != target.begin:
        begins = ("none" if each is None else str(each) for each in (draft.begin, target.begin))
        return "the begin token is {} in the draft model, {} in the target".format(*begins)
    if draft.ends != target.ends:
        return f"the end tokens are {sorted(draft.ends)} in the draft model, {sorted(target.ends)} in the target"
    both = zip(draft.pieces, draft.kinds, target.pieces, target.kinds, strict=False)
    for token, (ours, kind, theirs, other) in enumerate(both):
        if Kind.UNUSED in (kind, other) or kind == other == Kind.CONTROL:
            continue
        if kind != other or ours != theirs:
            return f"id {token} is {_shown(ours, kind)} in the draft model, {_shown(theirs, other)} in the target"
    return None


def _shown(piece: bytes, kind: Kind) -> str:
    text = repr(piece.decode(errors="replace"))
    return f"the control token {text}" if kind == Kind.CONTROL else text
