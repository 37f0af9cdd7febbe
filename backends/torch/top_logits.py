"""Selects top logits on the device, to fetch about a thousand numbers of a row instead of all."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specpair.engines.backend import Logits, Rows, TopLogitsSpec
from specpair.engines.errors import EngineFailure, first_line
from specpair.speculation.sampling.sampling import TOP_LOGITS_COUNT
from specpair.speculation.sampling.top_logits import TopLogits

_log = logging.getLogger("specpair.torch")
Region = tuple[int, slice]  # where the logits of a piece are: the index of a slot in a launch, and tokens of that slot
# Ids that one selection covers on a NeuronCore: longer rows are reported not to compile. Llama 3's row of 128,256 ids
# is eight such chunks, of which the greatest 1,024 each make a row of 8,192 for the second selection.
NEURON_CHUNK = 16_384


def select_top_logits(
    logits: Tensor, wanted: Sequence[TopLogitsSpec], regions: Sequence[Region], chunk: int | None = None
) -> list[Rows]:
    """The top logits `wanted[i]` of each token at `regions[i]` in `logits` (slots, kept, vocabulary), or whole rows.

    Tensor shapes depend only on the shape of `logits` and a few sizes, so that a device that compiles for each shape
    meets no new one.
    `chunk`: the most ids that the device can select from at once; None: any number. With `chunk`, whole rows are given
        where more than TOP_LOGITS_COUNT are wanted: no selection of that size was compiled ahead.
    """
    if all(part.start >= part.stop for _, part in regions):  # no token, as in all but the last piece of a prompt
        return [[] for _ in regions]
    slots, kept, vocabulary = logits.shape
    below, temperature = [vocabulary] * slots, [1.0] * slots
    for (slot, _), each in zip(regions, wanted, strict=True):
        below[slot], temperature[slot] = each.below, each.temperature
    all_ids = torch.arange(vocabulary, device=logits.device)
    beyond = all_ids >= torch.tensor(below, device=logits.device)[:, None, None]
    numbers = logits.to(torch.float32).masked_fill(beyond, -torch.inf)
    most = vocabulary if chunk is None else TOP_LOGITS_COUNT
    sizes = [each.size if each.size is not None and each.size <= most else None for each in wanted]
    selected = [size for size in sizes if size is not None]
    if selected:
        sums = torch.logsumexp(numbers / torch.tensor(temperature, device=logits.device)[:, None, None], dim=-1)
        size = _bucket(max(selected), vocabulary)
        greatest, ids = _first(numbers, all_ids) if size == 1 else greatest_of(numbers, size, chunk)
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

    def rows(slot: int, part: slice, each: TopLogitsSpec, size: int | None) -> Rows:
        if size is not None:
            return [top(slot, at, each) for at in range(kept)[part]]
        # One by one: a slice would have as many shapes as there are numbers of rows.
        whole = [_row(numbers, slot * kept + at).cpu().numpy()[: each.below] for at in range(kept)[part]]
        return np.stack(whole) if whole else []

    return [rows(*region, each, size) for region, each, size in zip(regions, wanted, sizes, strict=True)]


def warm(logits: Tensor, below: int, chunk: int | None, name: str) -> bool:
    """Run `select_top_logits` in the usual sizes for this shape, so that the device compiles it now. Returns whether
    the device can; if not, the log says why.

    `below`: ids in the vocabulary.
    `chunk`: as in `select_top_logits`.
    `name`: of the model.
    """
    try:
        for size in (1, 2, TOP_LOGITS_COUNT, None):
            spec = TopLogitsSpec(None if size is None else min(size, below), 1.0, below)
            select_top_logits(logits, [spec], [(0, slice(0, 1))], chunk)
    except Exception as error:  # any type: what compilers raise
        _log.warning(
            "%s: top logits cannot be selected on the device, whole rows are fetched instead, which takes longer: %s",
            name,
            first_line(error),
        )
        return False
    return True


def greatest_of(numbers: Tensor, size: int, chunk: int | None) -> tuple[Tensor, Tensor]:
    """The `size` greatest of `numbers` (slots, kept, n) in each row, descending, and their indices in the row.

    With `chunk`, which is at least twice `size`, no more numbers than that are compared at once: the greatest of each
    chunk are selected, then the greatest of these. Where numbers are tied, any of them may be included. The index of a
    number of -inf means nothing: it may be that of padding.
    """
    if chunk is None or numbers.shape[-1] <= chunk:
        greatest, at = torch.topk(numbers, size, dim=-1)
        return greatest, at
    missing = -numbers.shape[-1] % chunk
    padded = torch.nn.functional.pad(numbers, (0, missing), value=-torch.inf)
    heads, at = torch.topk(padded.unflatten(-1, (-1, chunk)), size, dim=-1)
    first = torch.arange(0, padded.shape[-1], chunk, device=numbers.device)[:, None]  # of each chunk
    greatest, found = greatest_of(heads.flatten(-2), size, chunk)
    indices = (at + first).flatten(-2)
    return greatest, indices.gather(-1, found.clamp(max=indices.shape[-1] - 1))  # beyond is padding of a later stage


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
