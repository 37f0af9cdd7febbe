"""Recurrent and hybrid models on PyTorch: the settings that they rule out, and whether they go on from their states."""

from collections.abc import Sequence

import numpy as np
import torch

from backends.torch.compiling import NEURON
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions

_PASSES = (1, 2, 2, 3)  # tokens of the passes that read a text in parts
_APART = {torch.float32: 0.02}  # how much the logits of half the tokens may differ, as a share of the greatest
_APART_16_BITS = 0.2


def check_settings(options: LoadOptions, compiler: str | None, name: str) -> None:
    """Raises ModelLoadError for what a model with states cannot do. `name`: of the model and its architecture."""
    parts = options.tensor_parallel or 1
    if parts > 1:
        raise ModelLoadError(
            f"tensor_parallel {parts}: {name} keeps states, which cannot be spread over devices: leave it out",
            "tensor_parallel",
        )
    if compiler is not None:
        setting, advice = ("device", "use another one") if compiler == NEURON else ("compile", "leave it out")
        raise ModelLoadError(
            f"{setting}: {name} keeps states, which would read the padding of compiled launches: {advice}", setting
        )


def check_continues(backend: Backend, dtype: torch.dtype, name: str) -> None:
    """Raises ModelLoadError if passes over parts of a text give other logits than one pass over all of it: a model may
    begin anew in each pass of several tokens.

    `backend`: empty, and empty again afterwards.
    `name`: of the model and its architecture.
    """

    def logits(widths: Sequence[int]) -> Logits:
        parts, at = [], 0
        for width in widths:
            if some := tokens[at : at + width]:
                parts.append(backend.extend([Entry(0, at, some, 0)])[0].copy())
            at += width
        backend.release(0)
        return np.concatenate(parts)

    tokens = [backend.vocabulary.size * at // sum(_PASSES) for at in range(sum(_PASSES))]
    tokens = tokens[: min(backend.context_length, backend.max_batch_tokens)]
    try:
        whole, in_parts = logits([len(tokens)]), logits(_PASSES)
    except EngineFailure as error:
        raise ModelLoadError(f"{name} fails at its first tokens: {error}") from error
    # The median: rounding may send a token to another expert.
    apart = float(np.median(np.abs(whole - in_parts)[1:].max(axis=-1)) / np.abs(whole).max())
    if not apart <= _APART.get(dtype, _APART_16_BITS):
        raise ModelLoadError(
            f"{name} does not go on from its states as transformers runs it (logits differ by {apart:.2g} of the "
            "greatest), so it cannot roll back rejected tokens, which speculative decoding needs: choose another model"
        )
