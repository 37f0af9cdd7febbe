"""Compiles grammars for a vocabulary, and keeps the last ones."""

import json
from collections import OrderedDict
from threading import Lock
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.keywords import place_of, short, widest
from specpair.grammar.state import GrammarState
from specpair.grammar.tokenizer import tokenizer_of
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import ONE_LINE, GrammarText

_KEPT, _KEPT_CHARACTERS = 64, 1_000_000  # grammars, and characters of all their texts: each takes some 50 bytes
# Less than llguidance allows by default: a mask may take some 7 ms of the pass that a text shares with others.
_LIMITS = LLParserLimits(step_lexer_fuel=100_000, step_max_items=20_000, max_grammar_size=50_000, verbose_errors=False)
_MOST_PROPERTIES = 1000  # of an object: the time to compile grows with their square


class Grammars:
    """The grammars of one vocabulary. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()  # guards the next two
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[GrammarText, LLMatcher] = OrderedDict()  # the least recently used first

    def __call__(self, grammar: GrammarText) -> GrammarState:
        """A new state at the beginning of the grammar, a `MakeGrammar`.

        Raises InvalidRequest for a grammar that is wrong, or cannot be followed. It takes microseconds for one that was
        compiled lately, else milliseconds, and up to seconds for a large one.
        """
        vocabulary = self._vocabulary
        after = vocabulary.token_of(grammar.after) if grammar.after else None
        if grammar.after and after is None:
            raise InvalidRequest(
                f"grammar_after: {grammar.after!r} is not one token of this model", param="grammar_after"
            )
        matcher = self._matcher(grammar._replace(after=""))
        end = min(vocabulary.ends) if vocabulary.end is None else vocabulary.end
        canonical = vocabulary.encodes_here
        return GrammarState(
            matcher, vocabulary.size, vocabulary.ends, end, canonical=canonical, after=after, name=grammar.kind
        )

    def prepare(self) -> None:
        """Read the vocabulary, for which the first grammar would wait otherwise, and every other thread with it: half a
        second for 150,000 ids. A vocabulary without an end token is left alone."""
        self._vocabulary.token_of("")  # which takes a while, too, the first time
        if self._vocabulary.ends:
            self._made_tokenizer()

    def _matcher(self, grammar: GrammarText) -> LLMatcher:
        with self._lock:
            found = self._compiled.get(grammar)
            if found is not None:
                self._compiled.move_to_end(grammar)
                return found.deep_copy()
        made = _compiled(grammar, self._made_tokenizer())
        copy = made.deep_copy()
        with self._lock:
            self._compiled[grammar] = made
            while len(self._compiled) > _KEPT or sum(len(each.text) for each in self._compiled) > _KEPT_CHARACTERS:
                self._compiled.popitem(last=False)
        return copy

    def _made_tokenizer(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                if not self._vocabulary.ends:
                    raise InvalidRequest("the model has no end token, which would end a text that keeps to a grammar")
                self._tokenizer = tokenizer_of(self._vocabulary)
            return self._tokenizer


def grammars_of(vocabulary: Vocabulary) -> Grammars:
    """The grammars of a vocabulary, which live as long as it does: they encode texts with its model. Thread-safe."""
    found: Grammars = vocabulary.derived.setdefault("grammars", Grammars(vocabulary))
    return found


def _compiled(grammar: GrammarText, tokenizer: LLTokenizer) -> LLMatcher:
    kind, text, _ = grammar
    try:
        source = _SOURCES[kind](text)
    except RecursionError:
        raise _wrong(grammar, "it is nested too deeply") from None
    except Exception as error:  # of llguidance's own types, which are not public
        raise _wrong(grammar, str(error)) from None
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=_LIMITS)
    tried = matcher.deep_copy()
    if not tried.is_error():
        tried.compute_bitmask()  # some faults come to light with the first mask
    if tried.is_error():
        raise _wrong(grammar, tried.get_error())
    return matcher


def _schema(text: str) -> str:
    schema = json.loads(text)
    if (most := widest(schema)) > _MOST_PROPERTIES:
        raise ValueError(f"an object has {most} properties, at most {_MOST_PROPERTIES} are taken")
    return LLMatcher.grammar_from_json_schema("{}" if schema is True else text, defaults=ONE_LINE)


def _choices(text: str) -> str:
    quoted = (json.dumps(each, ensure_ascii=False) for each in json.loads(text))
    return LLMatcher.grammar_from_lark(f"start: {' | '.join(quoted)}")


_SOURCES: dict[str, Any] = {
    "json_schema": _schema,
    "regex": LLMatcher.grammar_from_regex,
    "choice": _choices,
    "grammar": lambda text: LLMatcher.grammar_from_lark(any_to_lark(text)),
}


def _wrong(grammar: GrammarText, reason: str) -> InvalidRequest:
    place = place_of(grammar.text, reason) if grammar.kind == "json_schema" else None
    where = grammar.kind if place is None else f"{grammar.kind}{place}"
    return InvalidRequest(f"{where}: {short(reason)}", param=grammar.kind)
