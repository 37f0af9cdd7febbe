"""Selects top logits on the device, so that about a thousand numbers are fetched of a row of logits, not all."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from backends.base import TOP_LOGITS_COUNT, EngineFailure, Logits, Rows, TopLogitsSpec, first_line
from speculation.sampling.top_logits import TopLogits

Place = tuple[int, slice]  # where the logits of a piece are: the index of a slot in a launch, and tokens of that slot


def select_top_logits(logits: Tensor, wanted: Sequence[TopLogitsSpec], places: Sequence[Place]) -> list[Rows]:
    """The top logits `wanted[i]` of each token at `places[i]` in `logits` (slots, kept, vocabulary), or the whole rows.

    Tensor shapes depend only on the shape of `logits` and a few sizes, so that a device that compiles for each shape
    meets no new one.
    """
    if all(part.start >= part.stop for _, part in places):  # no token, as in all but the last piece of a prompt
        return [[] for _ in places]
    slots, kept, vocabulary = logits.shape
    below, temperature = [vocabulary] * slots, [1.0] * slots
    for (slot, _), each in zip(places, wanted, strict=True):
        below[slot], temperature[slot] = each.below, each.temperature
    all_ids = torch.arange(vocabulary, device=logits.device)
    beyond = all_ids >= torch.tensor(below, device=logits.device)[:, None, None]
    numbers = logits.to(torch.float32).masked_fill(beyond, -torch.inf)
    sizes = [each.size for each in wanted if each.size is not None]
    if sizes:
        sums = torch.logsumexp(numbers / torch.tensor(temperature, device=logits.device)[:, None, None], dim=-1)
        size = _bucket(max(sizes), vocabulary)
        greatest, ids = _first(numbers, all_ids) if size == 1 else torch.topk(numbers, size, dim=-1)
        greatest, ids, sums = greatest.cpu().numpy(), ids.cpu().numpy(), sums.cpu().numpy()

    def top(slot: int, at: int, each: TopLogitsSpec) -> TopLogits:
        def fetch() -> Logits:
            try:
                whole: Logits = _row(numbers, slot * kept + at).cpu().numpy()
            except RuntimeError as error:
                raise EngineFailure(f"PyTorch failed to fetch logits: {first_line(error)}") from error
            return whole[: each.below]

        first = slice(0, min(size, each.below))
        return TopLogits(
            ids[slot, at, first], greatest[slot, at, first], each.below, each.temperature, float(sums[slot, at]), fetch
        )

    def rows(slot: int, part: slice, each: TopLogitsSpec) -> Rows:
        if each.size is not None:
            return [top(slot, at, each) for at in range(kept)[part]]
        # One by one: a slice would have as many shapes as there are numbers of rows.
        whole = [_row(numbers, slot * kept + at).cpu().numpy()[: each.below] for at in range(kept)[part]]
        return np.stack(whole) if whole else []

    return [rows(slot, part, each) for (slot, part), each in zip(places, wanted, strict=True)]


def warm(logits: Tensor, below: int) -> None:
    """Run `select_top_logits` in the usual sizes for logits of this shape, so that the device compiles for them now.

    `below`: ids in the vocabulary.
    """
    for size in (1, 2, TOP_LOGITS_COUNT):
        select_top_logits(logits, [TopLogitsSpec(min(size, below), 1.0, below)], [(0, slice(0, 1))])
    select_top_logits(logits, [TopLogitsSpec(None, 1.0, below)], [(0, slice(0, 1))])


def _bucket(size: int, vocabulary: int) -> int:
    """The smallest power of 32 that is at least `size` (1, 32, 1,024, 32,768), but at most `vocabulary`."""
    bucket = 1
    while bucket < size:
        bucket *= 32
    return min(bucket, vocabulary)


def _row(numbers: Tensor, at: int) -> Tensor:
    """Row `at` of the logits (slots, kept, vocabulary). The index is a tensor, so that a compiler sees no constant."""
    return numbers.flatten(0, 1).index_select(0, torch.tensor([at], device=numbers.device))[0]


def _first(numbers: Tensor, all_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest logit, and the smallest id that has it: `argmax` may return any such id."""
    greatest = numbers.amax(dim=-1, keepdim=True)
    return greatest, torch.where(numbers == greatest, all_ids, len(all_ids) - 1).amin(dim=-1, keepdim=True)
