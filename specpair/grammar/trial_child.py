"""A program that tries grammars: what compiling one takes, and its first masks. See `specpair.grammar.compiling`.

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
            _Text(self._tokenizer, _USUAL, self._limits).write()  # what any grammar takes counts for none
            self._ready = memory()
            return {}
        before = memory()
        text = _Text(self._tokenizer, request["source"], self._limits)
        text.write()
        if text.wrong:
            return {"wrong": text.wrong}
        return {"slowest": text.slowest, "memory": text.memory - self._ready, "grown": text.memory - before}


class _Text:
    """A text of a grammar, whose tokens are drawn from the masks."""

    def __init__(self, tokenizer: LLTokenizer, source: str, limits: LLParserLimits) -> None:
        self._matcher, self._random = LLMatcher(tokenizer, source, log_level=0, limits=limits), Random(1)
        self.slowest = 0.0  # seconds of a mask
        self.memory = memory()  # the most that the process has had
        self.wrong = ""  # what is wrong with the grammar

    def write(self) -> None:
        """Write `_STEPS` tokens, fewer if that takes longer than `_SECONDS`."""
        matcher, began = self._matcher, thread_time()
        for step in range(_STEPS):
            before = thread_time()
            mask = b"" if matcher.is_error() else matcher.compute_bitmask()
            self.slowest, self.memory = max(self.slowest, thread_time() - before), max(self.memory, memory())
            if matcher.is_error():  # a later fault is one of this text
                self.wrong = "" if step else matcher.get_error()
                return
            token = _drawn(mask, self._random)
            if token is None or thread_time() - began > _SECONDS or not matcher.consume_token(token):
                return


def _drawn(mask: bytes, random: Random) -> int | None:
    """One of the tokens in a mask: the first one behind a random place."""
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
