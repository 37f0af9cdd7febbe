"""Drafters of four qualities for one target: how often they agree with it is measured, not assumed.

The pair that ships has a small draft (near 0.6 on sampled text) and the target's own Q4_0 twin (near 0.9). No text or
temperature was found on which the small one comes near 0.8 without looping (18 held-out prompts at temperatures 0.4 to
1.2, 24 others at 0.5 and 0.7: 0.46 to 0.71), so the one between is the target itself with noise on its weights.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from gguf import quants

from lab.benchmarks.harness.models import BRANCHES, DRAFTERS, agreement, load_drafter
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import Paced
from lab.simulator.paced.padded_target import CACHE
from models import DEFAULT_TARGET
from models.gguf_file import Tensor, read_gguf, write_gguf
from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.sampling.sampling import Sampling

NAMES = ("twin", "noisy", "small", "junk")
_NOISE = 0.16  # of a weight matrix's standard deviation


def noisy_target() -> Path:
    """The default target with seeded Gaussian noise on its matrices; made once and kept."""
    CACHE.mkdir(exist_ok=True)
    kept = CACHE / f"noisy-{_NOISE:g}.gguf"
    if not kept.exists():
        model = read_gguf(DEFAULT_TARGET)
        rng = np.random.default_rng(0)
        write_gguf(replace(model, tensors=[_noisy(tensor, rng) for tensor in model.tensors]), kept)
    return kept


def _noisy(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    if tensor.data.ndim < 2:
        return tensor
    values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
    values = values + rng.normal(0.0, _NOISE * values.std(), values.shape).astype(np.float32)
    return Tensor(tensor.name, quants.quantize(values, tensor.kind), tensor.kind)


class Junk:
    """Draft tokens that are hardly ever accepted, at a model's cost."""

    width = BRANCHES

    def __init__(self, cost: LinearCost) -> None:
        self._cost = cost

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        time.sleep(self._cost.of([Entry(slot, 0, [0], 0) for slot in range(len(tails))]))
        proposals = []
        for tail in tails:
            last, place = [*text[-1:], *tail][-1], len(text) + len(tail)
            proposals.append(Proposal((31 * last + place) % 4096, 0.3, (31 * last + place + 1) % 4096))
        return Expansion(proposals, len(tails))


class Loaded:
    """The draft models by name, loaded once; a drafter made of one costs what it is told."""

    def __init__(self, models: dict[str, Backend]) -> None:
        self._models = models

    def encode(self, prompt: str) -> list[int]:
        """The prompt's ids, which are the same for all."""
        return next(iter(self._models.values())).vocabulary.encode(prompt)

    def drafter(self, name: str, cost: LinearCost, sampling: Sampling) -> Drafter:
        """A new drafter."""
        return Junk(cost) if name == "junk" else ModelDrafter(Paced(self._models[name], cost), sampling)

    def step_time(self, name: str, cost: LinearCost, sampling: Sampling) -> float:
        """Median seconds to draft one token further, in a text of some length."""
        drafter = self.drafter(name, cost, sampling)
        taken = []
        for length in range(128, 144):
            began = time.perf_counter()
            drafter.expand(list(range(2, 2 + length)), [[]], False)
            taken.append(time.perf_counter() - began)
        return median(taken[1:])  # the first one reads the text

    def agrees(self, name: str, text: Sequence[int], prompt_len: int, sampling: Sampling) -> list[bool]:
        """For each generated token of `text`, whether the drafter, knowing all before it, chooses it too."""
        drafter = Junk(LinearCost(0, 0, 0)) if name == "junk" else ModelDrafter(self._models[name], sampling)
        return agreement(drafter, text, prompt_len)


@contextmanager
def loaded(names: Sequence[str]) -> Iterator[Loaded]:
    """Draft models for as long as the block lasts."""
    with ExitStack() as stack:
        paths = {name: DRAFTERS.get(name) or noisy_target() for name in names if name != "junk"}
        yield Loaded({name: stack.enter_context(closing(load_drafter(path))) for name, path in paths.items()})
