"""What the options of a logit processor are, and what a processor may know of its text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from specpair.speculation.sampling.row_changes import LogitProcessor

# Makes a new processor that masks what a grammar forbids. Takes a `GrammarText`; raises InvalidRequest.
MakeGrammar = Callable[[Any], LogitProcessor]


class ProcessorContext(NamedTuple):
    """What a processor may know of the text whose rows it changes."""

    ends: Collection[int]  # ids of the model's end tokens
    size: int | None  # ids of a row, where the text may hold others; None: it holds none
    temperature: float  # 0: the argmax is taken
    grammars: MakeGrammar | None = None  # None: there are none


class ProcessorOptions(ABC):
    """The options of one logit processor."""

    @abstractmethod
    def make(self, text: ProcessorContext) -> LogitProcessor | None:
        """A new processor; None where these options change no row."""
