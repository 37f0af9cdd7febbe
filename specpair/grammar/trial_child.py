"""A program that tries grammars: compiles each and takes its first masks. See `specpair.grammar.compiling`.

The first request has the vocabulary and the `limits` of llguidance, each later one a grammar. Its answer has `wrong`,
what llguidance says of a grammar that it does not take; else the seconds of its slowest mask, and the bytes that the
process has taken since it was ready, `memory`, and for this grammar, `grown`.
"""

import os
from contextlib import suppress
from random import Random
from time import thread_time
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from specpair.child_processes.worker import memory, serve
from specpair.grammar.tokenizer import TokenTable, tokenizer_of_table

_NICE = 5  # texts come first
_STEPS, _SECONDS = 64, 0.1  # tokens of a text, seconds of processor time
_USUAL = LLMatcher.grammar_from_json_schema({"type": "object", "properties": {"a": {}}})


class _Trials:
    def __init__(self) -> None:
        self._tokenizer: LLTokenizer | None = None
        self._limits = LLParserLimits()
        self._ready = 0  # bytes of memory

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of_table(TokenTable.of_json(request["vocabulary"]))
            self._limits = LLParserLimits(**request["limits"])
            self._tried(self._tokenizer, _USUAL)  # what any grammar takes counts for none
            self._ready = memory()
            return {}
        before = memory()
        wrong, slowest, most = self._tried(self._tokenizer, request["source"])
        return {"wrong": wrong} if wrong else {"slowest": slowest, "memory": most - self._ready, "grown": most - before}

    def _tried(self, tokenizer: LLTokenizer, source: str) -> tuple[str, float, int]:
        """Write a text of a grammar, whose tokens are drawn from the masks: `_STEPS` tokens, fewer if that takes longer
        than `_SECONDS`. Returns what is wrong with it, the seconds of the slowest mask, and the most bytes that the
        process has had."""
        matcher, random = LLMatcher(tokenizer, source, log_level=0, limits=self._limits), Random(1)
        slowest, most, began = 0.0, memory(), thread_time()
        for step in range(_STEPS):
            before = thread_time()
            mask = b"" if matcher.is_error() else matcher.compute_bitmask()
            slowest, most = max(slowest, thread_time() - before), max(most, memory())
            if matcher.is_error():  # a later fault is one of this text
                return "" if step else matcher.get_error(), slowest, most
            token = _drawn(mask, random)
            if token is None or thread_time() - began > _SECONDS or not matcher.consume_token(token):
                break
        return "", slowest, most


def _drawn(mask: bytes, random: Random) -> int | None:
    """A token of a mask: the first one behind a random position."""
    place = random.randrange(len(mask) or 1)
    found = (mask[place:] + mask[:place]).lstrip(b"\0")
    if not found:
        return None
    bits = found[0]
    return 8 * ((place - len(found)) % len(mask)) + random.choice([bit for bit in range(8) if bits >> bit & 1])


if __name__ == "__main__":
    with suppress(AttributeError, OSError):
        os.nice(_NICE)
    serve(_Trials().answer)
