"""Logit processors change a row of logits by the text so far, before temperature, top-k, top-p and the draw.

`processors` has their options, and says how one is added.

Order and formulas are those of vLLM. l is a logit, and n is how often its id occurs in the output so far:

    grammar               -inf for what it forbids
    min_tokens n          -inf for the end tokens while the output has fewer than n tokens, unless no other id is left
    logit_bias b          l + b
    repetition_penalty r  l / r where l > 0, else l * r, for ids in the prompt or the output (CTRL, arXiv 1909.05858)
    frequency_penalty f,
    presence_penalty p    l - f * n - p where n > 0
    min_p                 -inf where the id's probability at the session's temperature, after all of the above, is less
                          than min_p times the greatest one; left out where the session is greedy

Logits are float32, and so is the arithmetic. A verifier and a drafter that process the same row get the same bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from specpair.speculation.sampling.top_logits import Logits, Row, TopLogits

NAME = "processors-1"  # of this order and these formulas: other ones need another name


class LogitProcessor(ABC):
    """Changes rows of logits of one text, whose tokens it gets one by one. One thread at a time may use it.

    `begin` comes first, once. Then the output grows by `push` and shrinks by `pop`, as draft tokens are tried and taken
    back. A processor that does not depend on the text needs `process` only.

    One that `limits` texts forbids tokens whatever their logits, and so can say without a row what may come next. One
    that `forces` tokens may know one that alone can come next.
    """

    limits: ClassVar[bool] = False
    forces: ClassVar[bool] = False

    def begin(self, prompt: Sequence[int]) -> None:  # noqa: B027, as it is optional
        """Take in the prompt."""

    def push(self, token: int) -> None:  # noqa: B027
        """Take in the next token of the output."""

    def pop(self, token: int) -> None:  # noqa: B027
        """Take back `token`, the last one that was pushed."""

    @abstractmethod
    def process(self, row: Logits) -> None:
        """Change `row`, writable float32 of shape (vocab,), which holds the logits of the next token.

        An id at -inf cannot be drawn. At least one id must stay finite.
        """

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        return True

    def only(self) -> int | None:
        """The only token that can come next; None: there are several, or it is unknown."""
        return None


# Makes a new processor that masks what a grammar forbids. Takes a `GrammarText`; raises InvalidRequest.
MakeGrammar = Callable[[Any], LogitProcessor]


class ProcessorChain:
    """The logit processors of one text. They follow its tokens. One thread at a time may use them."""

    def __init__(self, processors: Sequence[LogitProcessor], prompt_len: int) -> None:
        """`processors`: new ones, applied in this order.
        `prompt_len`: tokens of the prompt.
        """
        self.prompt_len = prompt_len
        self._processors = list(processors)
        self._followed = 0  # committed tokens that they were told of, prompt included
        self._drafts: list[int] = []  # draft tokens behind these that they were told of, too

    def commit(self, text: Sequence[int]) -> None:
        """Follow the committed `text`, prompt included, which only grows from call to call."""
        for token in self.new_in(text):
            self._push(token)
        self._followed = len(text)

    def new_in(self, text: Sequence[int]) -> Sequence[int]:
        """The tokens of `text` behind the prompt and the committed tokens. Drops the draft tokens that were tried."""
        if len(text) > self._followed:
            self._try([])
            if not self._followed:
                for processor in self._processors:
                    processor.begin(text[: self.prompt_len])
                self._followed = self.prompt_len
        return text[self._followed :]

    def process(self, row: Row, drafts: Sequence[int] = ()) -> Logits:
        """The processed `row`, which follows the committed text and `drafts`: a new array, float32 of shape (vocab,).

        Nothing is computed for `drafts` that begin with those of the call before, but for their new tokens.
        """
        self._try(list(drafts))
        processed = np.array(row.whole() if isinstance(row, TopLogits) else row, np.float32)
        for processor in self._processors:
            processor.process(processed)
        return processed

    def allows(self, token: int, drafts: Sequence[int] = ()) -> bool:
        """Whether `token` may follow the committed text and `drafts`."""
        self._try(list(drafts))
        return all(each.allows(token) for each in self._processors)

    def only(self, drafts: Sequence[int] = ()) -> int | None:
        """The only token that can follow the committed text and `drafts`; None: there are several."""
        self._try(list(drafts))
        return next((token for each in self._processors if (token := each.only()) is not None), None)

    @property
    def forces(self) -> bool:
        """Whether there may be positions where only one token can follow."""
        return any(each.forces for each in self._processors)

    def certain(self, most: int) -> list[int]:
        """The forced tokens behind the committed text, at most `most`: each is the only token that can follow."""
        found: list[int] = []
        while len(found) < most and (token := self.only(found)) is not None:
            found.append(token)
        return found

    def _try(self, drafts: list[int]) -> None:
        """Follow `drafts` behind the committed text, in place of the draft tokens before."""
        tried = self._drafts
        while tried != drafts[: len(tried)]:
            token = tried.pop()
            for processor in self._processors:
                processor.pop(token)
        for token in drafts[len(tried) :]:
            self._push(token)
            tried.append(token)

    def _push(self, token: int) -> None:
        for processor in self._processors:
            processor.push(token)


class ProcessedRows(dict[int, Logits]):
    """The processed rows of a verify pass, by index: row 0 follows the committed text, row i + 1 drafts[i].

    A row is processed when it is first asked for, so a row that no rule looks at costs nothing.
    """

    def __init__(
        self,
        processors: ProcessorChain,
        rows: Sequence[Row] | Logits,
        drafts: Sequence[int],
        parents: Sequence[int] = (),
    ) -> None:
        """`processors`: they have followed the committed text.
        `parents`: for each draft token, how many before it the one stands that it follows; empty: 1 for each.
        """
        super().__init__()
        self._processors, self._rows, self._drafts, self._parents = processors, rows, drafts, parents

    def __missing__(self, row: int) -> Logits:
        path, at = list[int](), row - 1
        while at >= 0:
            path.append(self._drafts[at])
            at -= self._parents[at] if self._parents else 1
        processed = self[row] = self._processors.process(self._rows[row], path[::-1])
        return processed


def following(processors: Sequence[LogitProcessor], prompt_len: int, *, limits: bool = False) -> ProcessorChain | None:
    """The processors of one text with a prompt of `prompt_len` tokens; None if there are none.

    `limits`: only those that limit what may come next.
    """
    chosen = [each for each in processors if each.limits or not limits]
    return ProcessorChain(chosen, prompt_len) if chosen else None
