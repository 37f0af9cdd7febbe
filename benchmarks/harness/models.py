"""The models and prompts of experiments: a target that costs what a large one does, draft models, held-out source."""

import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from backends.base import Backend, Entry, LoadOptions
from backends.registry import load
from benchmarks.harness.report import ROOT
from drafters.draft_model import BRANCH_CELLS
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from models.export import pad_layers
from models.training.corpus import HELD_OUT
from speculation.sampling.sampling import Sampling, choose

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}  # the twin is the target in 4 bits
BRANCHES = 6  # continuations that a drafter may look behind at once
CONTEXT = 1024
HELD_OUT_FILES = ("configparser.py", "fractions.py", "_osx_support.py")
CACHE = ROOT / ".cache"
_PAD_LAYERS = 24
_PROBE_WIDTH, _MOST_WIDTH = 8, 128  # times; the second is a file of 2.6 GB


def step_ms(
    model: Path, *, widths: Sequence[int] = (1,), threads: int = 1, repeats: int = 9, in_turn: bool = False
) -> dict[int, float]:
    """Median milliseconds of a forward pass by its number of tokens, with logits for each, behind a prompt of 64.

    Each width is repeated by itself; with `in_turn` no pass has the width of the one before.
    """
    backend = load("llama_cpp", LoadOptions(model=model, slots=1, context_length=512, threads=threads))
    try:
        backend.extend([Entry(0, 0, list(range(2, 66)), 64)])
        once = [width for width in widths for _ in range(repeats)]
        times: dict[int, list[float]] = {width: [] for width in widths}
        for width in list(widths) * repeats if in_turn else once:
            began = time.perf_counter()
            backend.extend([Entry(0, 64, list(range(2, 2 + width)), 0)])
            times[width].append(1e3 * (time.perf_counter() - began))
        return {width: median(taken) for width, taken in times.items()}
    finally:
        backend.close()


def padded_target(milliseconds: float) -> Path:
    """The default target padded until a step takes about so many milliseconds here on one thread; made once and kept.

    It has 32 layers, as an 8B model has, all of them wider than the target's own.
    """
    CACHE.mkdir(exist_ok=True)
    kept = CACHE / f"padded-{milliseconds:g}ms.gguf"
    if not kept.exists():
        narrow, wide = _padded_cost(1), _padded_cost(_PROBE_WIDTH)
        per_width = max((wide - narrow) / (_PROBE_WIDTH - 1), 1e-3)
        width = 1 + round((milliseconds - narrow) / per_width)
        pad_layers(DEFAULT_TARGET, kept, _PAD_LAYERS, max(1, min(_MOST_WIDTH, width)))
    return kept


def _padded_cost(width: int) -> float:
    probe = CACHE / "probe.gguf"
    pad_layers(DEFAULT_TARGET, probe, _PAD_LAYERS, width)
    try:
        return step_ms(probe, repeats=15)[1]
    finally:
        probe.unlink()


def load_drafter(path: Path) -> Backend:
    """A draft model as users get it, on one thread."""
    shared = BRANCH_CELLS * (BRANCHES - 1)
    return load(
        "llama_cpp", LoadOptions(model=path, slots=BRANCHES, shared_cells=shared, context_length=CONTEXT, threads=1)
    )


def held_out_prompts(count: int) -> list[str]:
    """So many prompts of 4 lines, from files that the default pair was not trained on and every Python has."""
    assert HELD_OUT.issuperset(HELD_OUT_FILES)
    library = Path(sysconfig.get_path("stdlib"))
    texts = [(library / name).read_text(encoding="utf-8").splitlines(keepends=True) for name in HELD_OUT_FILES]
    places = [(lines, (part * len(lines)) // 7) for part in range(1, 7) for lines in texts]
    return ["".join(lines[at : at + 4]) for lines, at in places[:count]]


def decoded(backend: Backend, slot: int, tokens: Sequence[int], held: int, sampling: Sampling, count: int) -> list[int]:
    """Decode `count` tokens behind `tokens`, of which `slot` holds the first `held`, over any end."""
    tokens, first = list(tokens), len(tokens)
    while len(tokens) < first + count:
        logits = backend.extend([Entry(slot, held, tokens[held:], len(tokens) - held - 1)])[0][0]
        held = len(tokens)
        tokens.append(choose(logits, sampling, held))
    return tokens[first:]
