"""A target that writes given texts, as a large model would that was told to edit one.

`RECITED` names a file with a list of texts, each a list of token ids in the default target's vocabulary; `PACED_TARGET`
is the cost. The tokens of a slot are looked up among the beginnings of these texts; behind anything else the text ends.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fastapi import FastAPI

from backends.base import Backend, Entry, Logits
from backends.llama_cpp.vocabulary import read_gguf_vocabulary
from backends.vocabulary import Vocabulary
from benchmarks.harness.models import CONTEXT
from models import DEFAULT_TARGET
from simulation.paced import Cost, Paced
from verifier_server.app import create_app
from verifier_server.settings import from_environment

_CERTAIN = 50.0  # above all other logits


class Reciting(Backend):
    """See the module. Slots hold plain token lists."""

    name, model_name = "reciting", "reciting"

    def __init__(self, texts: Sequence[Sequence[int]], vocabulary: Vocabulary, slots: int, context_length: int) -> None:
        self.vocabulary, self.slots, self.context_length = vocabulary, slots, context_length
        self.max_batch_tokens = 512
        self._end = min(vocabulary.ends)
        self._next = {tuple(text[:end]): text[end] for text in texts for end in range(len(text))}
        self._held: list[list[int]] = [[] for _ in range(slots)]
        super().__init__()

    def close(self) -> None:
        self._held = [[] for _ in range(self.slots)]

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        results = []
        for slot, start, tokens, logits_from in batch:
            held = self._held[slot]
            held[start:] = tokens
            logits = np.zeros((len(tokens) - logits_from, self.vocabulary.size), np.float32)
            for at in range(logits_from, len(tokens)):
                logits[at - logits_from, self._next.get(tuple(held[: start + at + 1]), self._end)] = _CERTAIN
            results.append(logits)
        return results

    def _copy(self, source: int, destination: int, length: int) -> None:
        self._held[destination] = self._held[source][:length]

    def _release(self, slot: int) -> None:
        self._held[slot] = []


def application() -> FastAPI:
    """A verifier by the environment."""
    settings = from_environment()
    texts = json.loads(Path(os.environ["RECITED"]).read_text(encoding="utf-8"))
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    backend = Reciting(texts, vocabulary, settings.rows or 2, settings.context or CONTEXT)
    return create_app(settings, Paced(backend, Cost.parse(os.environ["PACED_TARGET"])))
