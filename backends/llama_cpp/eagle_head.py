"""EAGLE-3: a head of one layer that reads the inputs of three layers of its target (2503.01840).

An encoder makes one hidden state of a token's three inputs. From then on the head works like an MTP head. As training
does, it begins with the second token of a text: there is no state before the first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp_ext as extended

from backends.llama_cpp.batch import PassBatch
from backends.llama_cpp.head_slots import Hidden
from backends.llama_cpp.layer_inputs import LayerInputs
from backends.llama_cpp.library import floats, lib, take_warnings
from backends.llama_cpp.mtp_head import PairHead
from specpair.engines.errors import EngineFailure

_ENCODED = 64  # tokens of a pass of the encoder, for each of which llama.cpp keeps room for a row of logits


class EagleHead(PairHead):
    """An EAGLE-3 head. `layers`: of the target, which its file names."""

    name = "EAGLE-3 head"
    _first_pair = 1

    def __init__(self, model: Any, target: Any, params: Any, slots: int, layers: Sequence[int]) -> None:
        self._inputs = LayerInputs(target, layers)
        super().__init__(model, target, params, slots, 1, int(lib.llama_model_n_embd(model)))
        self._encoded = min(_ENCODED, int(lib.llama_n_ubatch(self._contexts[0].context)))
        self._features = PassBatch(self._encoded, 1, self._inputs.width, ids=False)

    def _rows(self, count: int) -> Hidden:
        features, context = self._inputs.read(count), self._contexts[0].context
        behind = lib.llama_memory_seq_pos_max(self._contexts[0].memory, 0) + 1  # the encoder ignores positions
        states = np.empty((count, self._width), dtype=np.float32)
        for at in range(0, count, self._encoded):
            piece = features[at : at + self._encoded]
            self._features.tokens = 0
            self._features.add_inputs(0, behind, piece)  # llama.cpp checks them all the same
            code = self._features.encode(context)
            if code:
                raise EngineFailure(f"the model's head: llama_encode returned {code}: {take_warnings()}")
            rows = floats(extended.llama_get_embeddings_nextn(context), len(piece), self._width)
            states[at : at + len(piece)] = rows
        return states
