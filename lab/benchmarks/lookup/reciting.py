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

from backends.llama_cpp.vocabulary import read_gguf_vocabulary
from backends.scripted import ScriptedBackend
from lab.benchmarks.harness.models import CONTEXT
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced.engine import Paced
from models import DEFAULT_TARGET
from specpair.engines.backend import Logits
from specpair.engines.vocabulary import Vocabulary
from verifier_server.app import create_app
from verifier_server.flags import from_environment

_CERTAIN = 50.0  # above all other logits


class Reciting(ScriptedBackend):
    """See the module."""

    name = "reciting"

    def __init__(self, texts: Sequence[Sequence[int]], vocabulary: Vocabulary, slots: int, context_length: int) -> None:
        super().__init__(slots=slots, context_length=context_length)
        self.model_name, self.vocabulary = self.name, vocabulary
        self._end = min(vocabulary.ends)
        self._next = {tuple(text[:end]): text[end] for text in texts for end in range(len(text))}

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = np.zeros(self.vocabulary.size, np.float32)
        logits[self._next.get(tuple(tokens), self._end)] = _CERTAIN
        return logits


def application() -> FastAPI:
    """A verifier by the environment."""
    settings = from_environment()
    texts = json.loads(Path(os.environ["RECITED"]).read_text(encoding="utf-8"))
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    options = settings.load_options()
    backend = Reciting(texts, vocabulary, options.slots or 2, options.context_length or CONTEXT)
    return create_app(settings, Paced(backend, LinearCost.parse(os.environ["PACED_TARGET"])))
