"""Pads the shipped models until a step on this machine takes as long as a larger model's; times a step."""

import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

from backends.registry import load
from models import DEFAULT_TARGET
from models.export import pad_layers
from specpair.engines.backend import Entry
from specpair.engines.load_options import LoadOptions

CACHE: Final = Path(__file__).resolve().parents[3] / ".cache"
_PAD_LAYERS: Final = 24
_PROBE_WIDTH: Final = 8  # times
_MOST_WIDTH: Final = 128  # times; a file of 2.6 GB


def step_ms(model: Path, repeats: int = 9) -> float:
    """Median milliseconds of a forward pass over one token, with its logits, behind a prompt of 64, on one thread."""
    with closing(load("llama_cpp", LoadOptions(model=model, slots=1, context_length=512, threads=1))) as backend:
        backend.extend([Entry(0, 0, list(range(2, 66)), 64)])
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            backend.extend([Entry(0, 64, [2], 0)])
            times.append(1e3 * (time.perf_counter() - began))
    return median(times)


def padded_target(milliseconds: float) -> Path:
    """The default target padded until a step takes about so many milliseconds here on one thread; made once and kept.

    It has 32 layers, as an 8B model has, all of them wider than the target's own.
    """
    return _padded(DEFAULT_TARGET, milliseconds, CACHE / f"padded-{milliseconds:g}ms.gguf")


def _padded(model: Path, milliseconds: float, kept: Path) -> Path:
    CACHE.mkdir(exist_ok=True)
    if not kept.exists():
        narrow, wide = _padded_cost(model, 1), _padded_cost(model, _PROBE_WIDTH)
        per_width = max((wide - narrow) / (_PROBE_WIDTH - 1), 1e-3)
        width = 1 + round((milliseconds - narrow) / per_width)
        pad_layers(model, kept, _PAD_LAYERS, max(1, min(_MOST_WIDTH, width)))
    return kept


def _padded_cost(model: Path, width: int) -> float:
    probe = CACHE / "probe.gguf"
    pad_layers(model, probe, _PAD_LAYERS, width)
    try:
        return step_ms(probe, repeats=15)
    finally:
        probe.unlink()
