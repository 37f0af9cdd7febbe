"""A program that tries grammars: what compiling one takes, and its first masks. See `specpair.grammar.trial`.

The first request has the vocabulary and the `limits` of llguidance, each later one a grammar. Its answer has `wrong`,
what llguidance says of a grammar that it does not take; else the seconds of its slowest mask, and the bytes that the
process has taken since it was ready, `memory`, and for this grammar, `grown`.
"""

from random import Random
from time import thread_time
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from specpair.child_processes.answering import most_memory, serve
from specpair.grammar.tokenizer import TokenTable, tokenizer_of_table

_STEPS = 8  # tokens of a text, which are drawn from the masks
_SLOW = 1.0  # seconds of a mask behind which no other is tried


class _Trials:
    def __init__(self) -> None:
        self._tokenizer: LLTokenizer | None = None
        self._limits = LLParserLimits()
        self._ready = 0  # bytes of memory

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of_table(TokenTable.of_json(request["vocabulary"]))
            self._limits = LLParserLimits(**request["limits"])
            self._ready = _memory()
            return {}
        before = _memory()
        matcher = LLMatcher(self._tokenizer, request["source"], log_level=0, limits=self._limits)
        slowest, random = 0.0, Random(1)
        for step in range(_STEPS):
            began = thread_time()
            mask = b"" if matcher.is_error() else matcher.compute_bitmask()
            slowest = max(slowest, thread_time() - began)
            if slowest > _SLOW:
                break
            if step == 0 and matcher.is_error():  # some faults come to light with the first mask
                return {"wrong": matcher.get_error()}
            token = _drawn(mask, random)
            if token is None or matcher.is_error() or matcher.is_stopped() or not matcher.consume_token(token):
                break
        memory = _memory()
        return {"slowest": slowest, "memory": memory - self._ready, "grown": memory - before}


def _drawn(mask: bytes, random: Random) -> int | None:
    """One of the tokens in a mask."""
    at = random.choice([at for at, bits in enumerate(mask) if bits] or [None])
    return None if at is None else 8 * at + random.choice([bit for bit in range(8) if mask[at] >> bit & 1])


def _memory() -> int:
    try:
        return most_memory()
    except ImportError:  # not known on this system: the deadline remains
        return 0


if __name__ == "__main__":
    serve(_Trials().answer)
