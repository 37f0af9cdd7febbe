"""Sources of draft tokens without a model: the text and earlier texts, the client's prediction of
it, the user's files, a grammar."""

from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import ref

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.predicted_output import PredictedOutput
from specpair.speculation.drafting.text_lookup import TextLookup
from specpair.speculation.drafting.tree import TreeNode
from specpair.speculation.sampling.row_changes import ProcessorChain

_SURE = 0.5  # chance from which a looked-up token counts as found
_RECENT = 64  # tokens of a text that may be compared with what is looked up


class TokenLookup(Protocol):
    """Predicts the next token of one text, which it follows."""

    def __len__(self) -> int:
        """The number of tokens of the text that were taken in."""
        ...

    def extend(self, tokens: Sequence[int]) -> None: ...
    def predict(self, tail: Sequence[int], forced: int) -> Sequence[tuple[int, float]]:
        """The likeliest token behind the text and `tail`, with its chance, 0 to 1; empty: none is known.

        `forced`: of the last tokens, those that could not be others: that they match says nothing.
        """
        ...


class Lookups:
    """The lookups of one text, and the constraint on its tokens."""

    def __init__(
        self,
        prompt_len: int = 0,
        *,
        in_text: bool = False,
        prediction: Sequence[int] | None = None,
        corpus: TokenLookup | None = None,
        earlier: TokenLookup | None = None,
        limits: ProcessorChain | None = None,
    ) -> None:
        """`in_text`: whether tokens are looked up in the text.
        `prediction`: ids of the output that the client expects behind a prompt of `prompt_len` tokens; None: there is
            no prediction.
        `corpus`: of the user's files; None: there are none.
        `earlier`: of earlier texts; None: there are none.
        `limits`: what forbids tokens; None: nothing does.
        """
        self._limits = limits
        self._forced = 0  # of the last tokens of the text, those that alone could stand there
        sources: list[tuple[DraftSource, TokenLookup | None]] = [
            (DraftSource.PREDICTION, None if prediction is None else PredictedOutput(prediction, prompt_len)),
            (DraftSource.LOOKUP, TextLookup() if in_text else None),
            (DraftSource.LOOKUP, earlier),
            (DraftSource.CORPUS, corpus),
        ]
        self._lookups = [(source, lookup) for source, lookup in sources if lookup is not None]

    def __bool__(self) -> bool:
        return bool(self._lookups) or self._limits is not None

    @property
    def forces(self) -> bool:
        """Whether there may be positions where only one token is allowed."""
        return self._limits is not None and self._limits.forces

    def follow(self, text: Sequence[int]) -> None:
        """Take in the tokens of `text`, prompt included, that are new to each lookup."""
        for _, lookup in self._lookups:
            lookup.extend(text[len(lookup) :])
        limits = self._limits
        if limits is None or len(text) < limits.prompt_len:
            return
        if limits.forces:
            if len(text) - _RECENT > limits.prompt_len:
                limits.commit(text[:-_RECENT])
            new = limits.new_in(text)
            for at, token in enumerate(new):
                self._forced = self._forced + 1 if limits.only(new[:at]) == token else 0
        limits.commit(text)

    def allows(self, token: int, tail: Sequence[int]) -> bool:
        """Whether `token` may follow the text and `tail`."""
        return self._limits is None or self._limits.allows(token, tail)

    def found(self, node: TreeNode, tail: Sequence[int]) -> list[TreeNode]:
        """The tokens that are found behind `node`, whose path from the text is `tail`: one at most for each lookup.

        The one that alone can stand there, if there is one; none that cannot stand there.
        """
        only = None if self._limits is None else self._limits.only(tail)
        if only is not None:
            return [TreeNode(only, 1.0, ref(node), source=DraftSource.GRAMMAR)]
        forced = node.forced()
        forced += self._forced if forced == len(tail) else 0
        return [
            TreeNode(token, chance, ref(node), source=source)
            for source, lookup in self._lookups
            for token, chance in lookup.predict(tail, forced)
            if self.allows(token, tail)
        ]


class FoundTokens:
    """Counts the tokens of one text that its lookups find, in whatever mode it is written, so that none must be tried.

    A token takes some microseconds. The prompt is taken in with the first token, while the verifier goes on.
    """

    def __init__(self, lookups: Callable[[], Lookups], known: Sequence[int]) -> None:
        """`lookups`: makes those of the text, of which `known` is there."""
        self._make, self._text = lookups, list(known)
        self._lookups: Lookups | None = None
        self._root = TreeNode(-1, 1.0, None)

    def take(self, tokens: Sequence[int]) -> int:
        """Take in the next tokens of the text. Returns how many of them were found."""
        if self._lookups is None:
            self._lookups = self._make()
        count = 0
        for token in tokens:
            self._lookups.follow(self._text)
            found = self._lookups.found(self._root, ())
            best = max(found, key=lambda each: each.confidence, default=None)
            count += best is not None and best.token == token and best.confidence >= _SURE
            self._text.append(token)
        return count
