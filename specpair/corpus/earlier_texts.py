"""The latest texts of a process as a source of drafts: what was written once is often written again, at least in part.

A prompt need not hold it: an answer that is asked for anew, one of many like prompts, a tool's output that was left out
of a long conversation. The texts stay in the memory of this process. Each is found by texts of its own scope only.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import SuffixArray

MOST_TOKENS = 1 << 15  # of a scope; indexing so many takes about 20 ms, when a text begins
MOST_SCOPES = 16


class EarlierTexts:
    """The latest texts of each scope. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._texts: OrderedDict[Hashable, list[NDArray[np.uint32]]] = OrderedDict()  # the latest scope last
        self._arrays: dict[Hashable, SuffixArray] = {}

    def add(self, scope: Hashable, tokens: Sequence[int]) -> None:
        """Keep a text, of a long one its last tokens. Texts that it begins with, as turns of a chat, are dropped."""
        if not tokens:
            return
        new = np.array(tokens[-MOST_TOKENS:], np.uint32)
        with self._lock:
            others = [text for text in self._texts.pop(scope, []) if not np.array_equal(text, new[: len(text)])]
            while sum(map(len, others)) + len(new) > MOST_TOKENS:
                others.pop(0)
            self._texts[scope] = [*others, new]
            self._arrays.pop(scope, None)
            while len(self._texts) > MOST_SCOPES:
                self._arrays.pop(self._texts.popitem(last=False)[0], None)

    def lookup(self, scope: Hashable, vocabulary_size: int) -> CorpusLookup | None:
        """The lookup of a text that begins now; None: its scope has no earlier ones."""
        with self._lock:
            if scope not in self._texts:
                return None
            if scope not in self._arrays:
                self._arrays[scope] = SuffixArray.of([text.tolist() for text in self._texts[scope]])
            return CorpusLookup([self._arrays[scope]], vocabulary_size)
