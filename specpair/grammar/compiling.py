"""Compiles grammars for a vocabulary, and caches the latest.

Child processes try grammars before this process compiles them: time and memory are bounded there.
"""

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from json import JSONDecoder
from queue import LifoQueue
from threading import Lock
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from specpair.child_processes.worker import Unanswered, Worker, written
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.keywords import keyword_path, largest_multiple, short, widest
from specpair.grammar.plain_schema import plain
from specpair.grammar.state import GrammarState
from specpair.grammar.tokenizer import TokenTable, tokenizer_of
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import ONE_LINE, GrammarText

DEADLINE = 10.0  # seconds
AT_A_TIME = 2  # grammars
_SLOWEST = 0.25  # seconds of processor time for a mask, in which no text gets a token
_MOST_KEPT = 48 * 2**20  # bytes that a grammar may hold
_GROWN = 4 * 2**20  # bytes that a grammar may take from a child that tries others
_CHILD = "specpair.grammar.trial_child"


class TooCostly(Exception):
    """A grammar takes too much time or memory. `late`: its trial did not end in time."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class Trials:
    """The trial processes of one vocabulary, started on demand. Thread-safe."""

    def __init__(self, table: Callable[[], TokenTable], limits: dict[str, Any]) -> None:
        """`limits`: of llguidance."""

        @cache
        def greeting() -> bytes:
            return written({"vocabulary": table().json, "limits": limits})

        self._workers = [Worker(_CHILD, greeting) for _ in range(AT_A_TIME)]
        self._idle = LifoQueue[Worker]()  # the one that was used last comes first
        for worker in self._workers:
            self._idle.put(worker)

    def prepare(self) -> None:
        """Start a child, in a thread, so that the first grammar need not wait for it."""
        worker = self._workers[-1]

        def start() -> None:
            with suppress(Unanswered):
                worker.start()

        threading.Thread(target=start, name="grammar trial", daemon=True).start()

    def attempt(self, source: str, seconds: float) -> tuple[str, int]:
        """llguidance's complaint about a grammar (empty: none), and the grammar's bytes. Raises TooCostly.

        `seconds`: how long it may take. Before, it waits for an idle child.
        """
        worker = self._idle.get()
        try:
            answer = worker.ask({"source": source}, seconds)
            if "wrong" in answer:
                return answer["wrong"], 0
            grown = answer["grown"]
            if grown > _GROWN or answer["memory"] > _MOST_KEPT:  # so that what the next one takes is seen
                worker.end()
        except Unanswered as error:
            raise TooCostly(f"it cannot be compiled: {error}", late=error.late) from None
        finally:
            self._idle.put(worker)
        if grown > _MOST_KEPT:
            raise TooCostly(f"it takes {grown >> 20} MB of memory, at most {_MOST_KEPT >> 20} MB are allowed")
        if answer["slowest"] > _SLOWEST:
            raise TooCostly(f"the mask of a token takes {answer['slowest']:.2f} s, at most {_SLOWEST:g} s are allowed")
        return "", grown

    def kill(self) -> None:
        for worker in self._workers:
            worker.kill()


_KEPT, _KEPT_CHARACTERS = 64, 1_000_000  # grammars, and characters of all their texts: each takes some 50 bytes
KEPT_MEMORY = 48 * 2**20  # bytes of all of them, as tried
REFUSED, REFUSED_SECONDS = 1024, 600.0  # grammars whose refusal is remembered, and for how long
# Less than llguidance allows by default: a mask may take some 7 ms of the pass that a text shares with others.
LIMITS: dict[str, Any] = {
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,
    "max_grammar_size": 50_000,
    "verbose_errors": False,
}
_MOST_PROPERTIES = 1000  # of an object: the time to compile grows with their square
_SCHEMA_IN_LARK = re.compile(r"%json\s*(?=\{)")
_MOST_MULTIPLE = 100_000  # of `multipleOf`, without its decimal point: time and memory grow with it


class Grammars:
    """The grammars of one vocabulary. Thread-safe.

    A child process tries each new grammar first, so that none takes long here, or much memory.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, tries: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tries`: whether grammars are tried; not if another process has tried them.
        `clock`: in seconds.
        """
        self._vocabulary, self._clock = vocabulary, clock
        self._lock = Lock()  # guards the next three
        self._tokenizer: LLTokenizer | None = None
        # With the bytes that each takes; the least recently used first.
        self._compiled: OrderedDict[GrammarText, tuple[LLMatcher, int]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, InvalidRequest]] = OrderedDict()  # until when; the oldest first
        self._trials = Trials(lambda: TokenTable.of(vocabulary), LIMITS) if tries else None

    def __call__(self, grammar: GrammarText) -> GrammarState:
        """A new state at the beginning of the grammar, a `MakeGrammar`.

        Raises InvalidRequest for a grammar that is wrong, cannot be followed or takes too much. It takes microseconds
        for one that was compiled lately, else milliseconds, and up to seconds for a large one.
        """
        vocabulary = self._vocabulary
        after = vocabulary.token_of(grammar.after) if grammar.after else None
        if grammar.after and after is None:
            raise InvalidRequest(
                f"grammar_after: {grammar.after!r} is not one token of this model", param="grammar_after"
            )
        matcher = self._matcher(grammar)
        end = min(vocabulary.ends) if vocabulary.end is None else vocabulary.end
        return GrammarState(
            matcher,
            vocabulary.size,
            vocabulary.ends,
            end,
            canonical=vocabulary.encodes_here,
            after=after,
            name=grammar.kind,
            on_error=partial(self._forget, grammar),
        )

    def prepare(self) -> None:
        """Read the vocabulary, for which the first grammar would wait otherwise, and every other thread with it: half a
        second for 150,000 ids. A vocabulary without an end token is left alone."""
        self._vocabulary.token_of("")  # which takes a while, too, the first time
        if self._vocabulary.ends:
            if self._trials is not None:
                self._trials.prepare()
            self._made_tokenizer()

    def compile(self, grammar: GrammarText, seconds: float = DEADLINE) -> bool:
        """Compile a grammar, unless it was compiled lately. Returns false if there is no answer within `seconds`, fewer
        than `DEADLINE`. Raises InvalidRequest."""
        if self.is_compiled(grammar):
            return True
        try:
            made, memory = self._made(grammar, seconds)
        except TooCostly as error:
            if error.late and seconds < DEADLINE:
                return False
            raise self._refuse(grammar, _wrong(grammar, f"{error}: make it simpler, or its numbers smaller")) from None
        except InvalidRequest as error:
            raise self._refuse(grammar, error) from None
        with self._lock:
            kept = self._compiled
            kept[_key(grammar)] = made, memory
            while len(kept) > 1 and (
                len(kept) > _KEPT
                or sum(len(each.text) for each in kept) > _KEPT_CHARACTERS
                or sum(size for _, size in kept.values()) > KEPT_MEMORY
            ):
                kept.popitem(last=False)
        return True

    def is_compiled(self, grammar: GrammarText) -> bool:
        """Whether a grammar is compiled and now cached. Raises InvalidRequest if it was refused lately."""
        with self._lock:
            until, error = self._refused.get(_digest(grammar), (0.0, None))
            if error is not None and self._clock() < until:
                raise InvalidRequest(error.message, **error.details)
            if found := _key(grammar) in self._compiled:
                self._compiled.move_to_end(_key(grammar))
            return found

    def kill(self) -> None:
        """Kill the trial processes at once: the grammars under trial are refused."""
        if self._trials is not None:
            self._trials.kill()

    def _matcher(self, grammar: GrammarText) -> LLMatcher:
        while True:
            with self._lock:
                if (found := self._compiled.get(_key(grammar))) is not None:
                    self._compiled.move_to_end(_key(grammar))
                    return found[0].deep_copy()
            self.compile(grammar)

    def _made(self, grammar: GrammarText, seconds: float) -> tuple[LLMatcher, int]:
        """The matcher of a grammar, and its bytes of memory. Raises InvalidRequest and TooCostly."""
        source, tokenizer, memory = _source(grammar), self._made_tokenizer(), 0
        if self._trials is not None:
            wrong, memory = self._trials.attempt(source, seconds)
            if wrong:
                raise _wrong(grammar, wrong)
        matcher = LLMatcher(tokenizer, source, log_level=0, limits=LLParserLimits(**LIMITS))
        tried = matcher.deep_copy()
        if not tried.is_error():
            tried.compute_bitmask()  # some faults come to light with the first mask
        if tried.is_error():
            raise _wrong(grammar, tried.get_error())
        return matcher, memory

    def _refuse(self, grammar: GrammarText, error: InvalidRequest) -> InvalidRequest:
        with self._lock:
            self._refused[_digest(grammar)] = self._clock() + REFUSED_SECONDS, error
            self._refused.move_to_end(_digest(grammar))
            if len(self._refused) > REFUSED:
                self._refused.popitem(last=False)
        return error

    def _forget(self, grammar: GrammarText) -> None:
        """Drop a grammar that can be followed no further: its texts share llguidance's state, and so the fault."""
        with self._lock:
            self._compiled.pop(_key(grammar), None)

    def _made_tokenizer(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                if not self._vocabulary.ends:
                    raise InvalidRequest("the model has no end token, which a text with a grammar needs")
                self._tokenizer = tokenizer_of(self._vocabulary)
            return self._tokenizer


def _key(grammar: GrammarText) -> GrammarText:
    return grammar._replace(after="")


def _digest(grammar: GrammarText) -> bytes:
    return sha256(f"{grammar.kind} {grammar.text}".encode(errors="surrogatepass")).digest()


def grammars_of(vocabulary: Vocabulary, *, tries: bool = True) -> Grammars:
    """The grammars of a vocabulary; they live as long as the vocabulary, whose model encodes their texts. Thread-safe.

    `tries`: see `Grammars`, for the first call.
    """
    found: Grammars | None = vocabulary.derived.get("grammars")
    if found is None:
        found = vocabulary.derived.setdefault("grammars", Grammars(vocabulary, tries=tries))
    return found


def _source(grammar: GrammarText) -> str:
    try:
        source: str = _SOURCES[grammar.kind](grammar.text)
    except RecursionError:
        raise _wrong(grammar, "it is nested too deeply") from None
    except Exception as error:  # of llguidance's own types, which are not public
        raise _wrong(grammar, str(error)) from None
    return source


def _schema(text: str) -> str:
    schema = plain(json.loads(text))
    if (most := widest(schema)) > _MOST_PROPERTIES:
        raise ValueError(f"an object has {most} properties, at most {_MOST_PROPERTIES} are taken")
    _check_multiples(schema)
    return LLMatcher.grammar_from_json_schema("{}" if schema is True else json.dumps(schema), defaults=ONE_LINE)


def _lark(text: str) -> str:
    for found in reversed([*_SCHEMA_IN_LARK.finditer(text)]):
        schema = None
        with suppress(ValueError):  # llguidance says what is wrong with it
            schema, end = JSONDecoder().raw_decode(text, found.end())
            text = text[: found.end()] + json.dumps(plain(schema) or schema) + text[end:]
        _check_multiples(schema)
    return LLMatcher.grammar_from_lark(any_to_lark(text))


def _check_multiples(schema: Any) -> None:
    if (largest := largest_multiple(schema)) > _MOST_MULTIPLE:
        raise ValueError(
            f"multipleOf comes to {largest}, at most {_MOST_MULTIPLE} is taken "
            "(without the decimal point: 0.25 counts as 25)"
        )


def _choices(text: str) -> str:
    quoted = (json.dumps(each, ensure_ascii=False) for each in json.loads(text))
    return LLMatcher.grammar_from_lark(f"start: {' | '.join(quoted)}")


_SOURCES: dict[str, Any] = {
    "json_schema": _schema,
    "regex": LLMatcher.grammar_from_regex,
    "choice": _choices,
    "grammar": _lark,
}


def _wrong(grammar: GrammarText, reason: str) -> InvalidRequest:
    reason = short(reason)
    place = keyword_path(grammar.text, reason) if grammar.kind == "json_schema" else ""
    return InvalidRequest(f"{grammar.kind}{place}: {reason}", param=grammar.kind)
