"""The latest texts of a process as a source of drafts: texts often repeat parts of earlier texts.

A prompt need not hold it: an answer that is asked for anew, one of many like prompts, a tool's output that was left out
of a long conversation. The texts stay in the memory of this process. Each is found by texts of its own scope only: of
one owner, who on a server has a key, and of one salt. What an owner's texts take, and when they are forgotten, does not
depend on those of others.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import SuffixArray

MOST_TOKENS = 1 << 15  # of a scope
MOST_SALTS = 8  # of an owner
KEPT = 3600.0  # seconds for which an owner's texts are kept behind the last one
_TOGETHER = MOST_TOKENS // 4  # tokens of a scope that are indexed together, which takes some 4 ms when a text ends

Scope = tuple[Hashable, Hashable]  # owner and salt


class _Indexed(NamedTuple):
    """Texts, the latest last, with an index of where their tokens occur."""

    texts: Sequence[NDArray[np.uint32]]
    array: SuffixArray

    @property
    def tokens(self) -> int:
        return sum(map(len, self.texts))


@dataclass(eq=False)
class _Owner:
    used: float  # when its last text ended
    salts: OrderedDict[Hashable, list[_Indexed]] = field(default_factory=OrderedDict)  # the latest one last
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards them


class EarlierTexts:
    """The latest texts of each scope. Thread-safe. Owners do not wait for each other's texts to be indexed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._lock = threading.Lock()  # guards the dict
        self._owners: dict[Hashable, _Owner] = {}

    def add(self, scope: Scope, tokens: Sequence[int]) -> None:
        """Keep an ended text, or its last tokens. Texts with which it begins, as in a chat, are dropped."""
        if not tokens:
            return
        new = np.array(tokens[-MOST_TOKENS:], np.uint32)
        owner = self._used(scope[0])
        with owner.lock:
            groups = list[_Indexed]()
            for group in owner.salts.pop(scope[1], []):
                texts = [text for text in group.texts if not np.array_equal(text, new[: len(text)])]
                if texts:
                    groups.append(group if len(texts) == len(group.texts) else _indexed(texts))
            room = groups and groups[-1].tokens + len(new) <= _TOGETHER
            groups.append(_indexed([*groups.pop().texts, new] if room else [new]))
            while sum(group.tokens for group in groups) > MOST_TOKENS:
                groups.pop(0)
            owner.salts[scope[1]] = groups
            if len(owner.salts) > MOST_SALTS:
                owner.salts.popitem(last=False)

    def lookup(self, scope: Scope, vocabulary_size: int) -> CorpusLookup | None:
        """A lookup for a text that begins now; None: its scope has no earlier texts."""
        with self._lock:
            owner = self._owners.get(scope[0])
        if owner is None:
            return None
        with owner.lock:
            groups = owner.salts.get(scope[1])
            return None if groups is None else CorpusLookup([group.array for group in groups], vocabulary_size)

    def _used(self, name: Hashable) -> _Owner:
        """The owner of a text that ends now. Owners whose last text ended long ago are forgotten."""
        now = self._clock()
        with self._lock:
            self._owners = {each: owner for each, owner in self._owners.items() if now - owner.used < KEPT}
            owner = self._owners.setdefault(name, _Owner(now))
            owner.used = now
            return owner


def _indexed(texts: Sequence[NDArray[np.uint32]]) -> _Indexed:
    return _Indexed(texts, SuffixArray.of(texts))
