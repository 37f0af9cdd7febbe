"""A draft corpus: the user's own files, from which draft tokens are looked up.

The index is kept in the user's cache folder, for each vocabulary and each path, so that the next process continues.
When the corpus is opened, changed files are indexed at once for a second at most, for which the first text waits. A
process of its own, which gives way to all others, indexes the rest. It does so again when a text begins and the last
time is a while ago. Texts see what is there when they begin.
"""

import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from specpair.child_processes.children import child
from specpair.corpus.index import Store, bring_up_to_date, encoder, write_vocabulary
from specpair.corpus.lookup import CorpusLookup
from specpair.corpus.suffix_array import SuffixArray
from specpair.engines.vocabulary import Vocabulary
from specpair.numbers import counted
from specpair.options.option import option


@dataclass(frozen=True, slots=True)
class CorpusState:
    """The contents of a corpus, and the progress of its indexing."""

    files: int
    tokens: int
    skipped: dict[str, int]  # files that are left out, by reason
    waiting: int  # files that are still to be indexed, as far as they have been found
    indexing: bool  # whether it is going on
    failure: str | None = None  # why the last indexing failed

    @property
    def described(self) -> str:
        """The state in a short line, such as `120 files, 7 skipped, 12 to index`."""
        parts = [counted(self.files, "file")]
        if self.skipped:
            parts.append(f"{sum(self.skipped.values())} skipped")
        if self.indexing and self.waiting:
            parts.append(f"{self.waiting} to index")
        if self.failure is not None:
            parts.append("not up to date: see the log")
        return ", ".join(parts)


_AT_ONCE = 1.0  # seconds of indexing for which the first text waits
_AGAIN = 60.0  # seconds after which what has changed is looked for again
_log = logging.getLogger("specpair.corpus")


class BadCorpus(ValueError):
    """A draft corpus cannot be used. The message has the reason and the remedy."""


def paths_of(text: str) -> tuple[Path, ...]:
    """The files and folders in a list, with commas."""
    return tuple(Path(name.strip()).expanduser() for name in text.split(",") if name.strip())


def checked(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The same paths. Raises BadCorpus if a path does not exist or cannot be read."""
    for path in paths:
        if not path.exists():
            raise BadCorpus(f"no such file or folder: {path}")
        if not os.access(path, os.R_OK):
            raise BadCorpus(f"{path} cannot be read: allow it to this user, or leave it out")
    return tuple(paths)


class DraftCorpus:
    """Files and folders, for one vocabulary. Thread-safe. Close it to end the indexing."""

    def __init__(self, paths: Sequence[Path], vocabulary: Vocabulary, cache: Path) -> None:
        """`cache`: the folder in which indexes are kept. Raises BadCorpus."""
        self._size, self._vocabulary = vocabulary.size, vocabulary
        self._roots = [path.resolve() for path in checked(paths)]
        self._stores = [Store.of(root, vocabulary, cache) for root in self._roots]
        self._words = cache / f"{vocabulary.fingerprint.ordinary[:16]}.json"
        try:
            write_vocabulary(vocabulary, self._words)
        except OSError as error:
            raise BadCorpus(f"the index of the files cannot be kept in {cache}: {error.strerror}") from None
        self._arrays: dict[tuple[int, str], SuffixArray] = {}  # by number of the store and segment's name
        self._seen = [0] * len(self._stores)
        self._lock = threading.Lock()  # guards both, and the process
        self._process: subprocess.Popen[str] | None = None
        self._idle, self._wanted, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._begun = threading.Event()  # set after the indexing for which the first text waits
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._keep_up_to_date, name="corpus", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the indexing. The next process resumes it."""
        with self._lock:
            self._closed.set()
            if self._process is not None:
                self._process.terminate()
        self._wanted.set()
        self._thread.join()

    def lookup(self) -> CorpusLookup:
        """A lookup for a text that begins now. The first text waits for the indexing of the first second."""
        self._begun.wait(2.0 * _AT_ONCE)
        self._wanted.set()
        return CorpusLookup(self._searched(), self._size)

    @property
    def state(self) -> CorpusState:
        """The state of the corpus now."""
        states = [store.state() for store in self._stores]
        files, tokens, waiting = (
            sum(getattr(each, name) for each in states) for name in ("files", "tokens", "waiting")
        )
        skipped = sum((Counter(each.skipped) for each in states), Counter[str]())
        return CorpusState(files, tokens, dict(skipped), waiting, not self._idle.is_set(), self._failure)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the indexing has ended. Returns whether it has."""
        return self._idle.wait(seconds)

    def _searched(self) -> list[SuffixArray]:
        """The suffix arrays of all present segments."""
        with self._lock:
            for number, store in enumerate(self._stores):
                if (changed := store.changed()) == self._seen[number]:
                    continue
                names = {(number, name) for name in store.state().segments}
                self._arrays = {
                    each: array for each, array in self._arrays.items() if each[0] != number or each in names
                }
                try:
                    for each in names - self._arrays.keys():
                        self._arrays[each] = store.searched(each[1])
                    self._seen[number] = changed
                except (OSError, ValueError) as error:  # replaced just now, or broken: the next text looks again
                    _log.warning("skipped a segment of the index of %s: %s", self._roots[number], error)
            return [*self._arrays.values()]

    def _keep_up_to_date(self) -> None:
        """Run the indexing once, then again for texts that begin later."""
        places = [str(each) for at, store in enumerate(self._stores) for each in (store.folder, self._roots[at])]
        complete = self._indexed_at_once()
        self._begun.set()
        while not self._closed.is_set():
            self._idle.clear()
            try:
                if not complete:
                    self._run("-m", "specpair.corpus.index", str(self._words), *places)
            except OSError as error:
                self._fail(str(error))
            complete = False  # from now on, files may have changed
            self._wanted.clear()
            self._idle.set()
            if not self._closed.wait(_AGAIN):  # it is set before `wanted` is, which this thread may just have cleared
                self._wanted.wait()

    def _indexed_at_once(self) -> bool:
        """Index for `_AT_ONCE` seconds at most, in this process. Returns whether nothing is left to do."""
        ends, complete = time.monotonic() + _AT_ONCE, True
        try:
            encode = encoder(self._vocabulary)
            for store, root in zip(self._stores, self._roots, strict=True):
                left = max(0.0, ends - time.monotonic())
                complete &= bring_up_to_date(store, root, encode, seconds=left, clock=self._now)
        except OSError:  # the process says it, which tries the same
            return False
        return complete

    def _now(self) -> float:
        """The time in seconds; infinity when the indexing is to end."""
        return inf if self._closed.is_set() else time.monotonic()

    def _run(self, *arguments: str) -> None:
        with child(*arguments, stderr=subprocess.PIPE) as process:
            with self._lock:
                self._process = process
                if self._closed.is_set():
                    process.terminate()
            assert process.stderr is not None
            said = process.stderr.read()
            status = process.wait()
            with self._lock:
                self._process = None
        self._failure = None
        if status and not self._closed.is_set():
            self._fail(said.strip().rpartition("\n")[2] or f"it ended with status {status}")

    def _fail(self, reason: str) -> None:
        self._failure = reason
        _log.warning("the files of the draft corpus are not indexed: %s", reason)


class DraftCorpora:
    """The same files for each vocabulary that texts have. Thread-safe. Close it to end the indexing."""

    def __init__(self, paths: Sequence[Path], cache: Path | None) -> None:
        """`paths`: the files and folders; empty: there is no corpus.
        `cache`: the folder in which indexes are kept; None: there is none.

        Raises BadCorpus.
        """
        if paths and cache is None:
            raise BadCorpus(
                "the index of the files needs a cache folder, and this user has no home: set XDG_CACHE_HOME"
            )
        self._paths, self._cache = checked(paths), cache
        self._lock = threading.Lock()  # guards it
        self._corpora: dict[str, DraftCorpus] = {}  # by fingerprint of the vocabulary

    def of(self, vocabulary: Vocabulary) -> DraftCorpus | None:
        """The corpus in the tokens of a vocabulary, opened if needed; None: there is no corpus. Raises BadCorpus."""
        if not self._paths:
            return None
        assert self._cache is not None
        with self._lock:
            key = vocabulary.fingerprint.ordinary
            if key not in self._corpora:
                self._corpora[key] = DraftCorpus(self._paths, vocabulary, self._cache)
            return self._corpora[key]

    def close(self) -> None:
        with self._lock:
            for each in self._corpora.values():
                each.close()


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Flags, variables and keys are made from this field."""

    draft_corpus: tuple[Path, ...] = option(
        (),
        "your own files and folders, such as a repository, separated by commas: draft tokens are also "
        "looked up in them; they are indexed in the background and stay on this machine",
        usually="none",
        reads=paths_of,
        group="drafting",
        placeholder="PATH",
    )
