"""Heads of rows of logits, found where the rows are: a thousand numbers to fetch of each in place of all."""

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.base import HEAD, EngineFailure, HeadOf, Logits, first_line
from speculation.sampling.top_logits import TopLogits

Place = tuple[int, slice]  # a row of a launch, and which of its tokens count


def heads_of(logits: Tensor, wanted: Sequence[HeadOf], places: Sequence[Place]) -> list[list[TopLogits]]:
    """`logits` (rows, kept, vocabulary); `wanted[i]`: of each of the tokens at `places[i]`.

    Whatever is wanted, shapes follow from those of `logits` and a few sizes, so that a device that compiles for each
    has met them before.
    """
    if all(part.start >= part.stop for _, part in places):  # as of all but the last piece of a prompt
        return [[] for _ in places]
    rows, kept, vocabulary = logits.shape
    below, temperature = [vocabulary] * rows, [1.0] * rows
    for (row, _), each in zip(places, wanted, strict=True):
        below[row], temperature[row] = each.below, each.temperature
    every = torch.arange(vocabulary, device=logits.device)
    beyond = every >= torch.tensor(below, device=logits.device)[:, None, None]
    numbers = logits.to(torch.float32).masked_fill(beyond, -torch.inf)
    sums = torch.logsumexp(numbers / torch.tensor(temperature, device=logits.device)[:, None, None], dim=-1)
    size = _bucket(max(each.size for each in wanted), vocabulary)
    greatest, ids = _first(numbers, every) if size == 1 else torch.topk(numbers, size, dim=-1)
    greatest, ids, sums = greatest.cpu().numpy(), ids.cpu().numpy(), sums.cpu().numpy()

    def head(row: int, at: int, each: HeadOf) -> TopLogits:
        def fetch() -> Logits:
            try:
                whole: Logits = _row(numbers, row * kept + at).cpu().numpy()
            except RuntimeError as error:
                raise EngineFailure(f"PyTorch failed to fetch logits: {first_line(error)}") from error
            return whole[: each.below]

        first = slice(0, min(size, each.below))
        return TopLogits(
            ids[row, at, first], greatest[row, at, first], each.below, each.temperature, float(sums[row, at]), fetch
        )

    return [[head(row, at, each) for at in range(kept)[part]] for (row, part), each in zip(places, wanted, strict=True)]


def warm(logits: Tensor, below: int) -> None:
    """Do once what `heads_of` will do with logits of this shape, but for sizes that hardly anybody asks for."""
    for size in (1, 2, HEAD):
        ((head,),) = heads_of(logits, [HeadOf(min(size, below), 1.0, below)], [(0, slice(0, 1))])
    head.whole()


def _bucket(size: int, vocabulary: int) -> int:
    """The smallest power of 32 that is no less: 1, 32, 1,024, 32,768; at most all."""
    bucket = 1
    while bucket < size:
        bucket *= 32
    return min(bucket, vocabulary)


def _row(numbers: Tensor, at: int) -> Tensor:
    """One row out of (rows, kept, vocabulary); which one is no constant that a compiler would see."""
    return numbers.flatten(0, 1).index_select(0, torch.tensor([at], device=numbers.device))[0]


def _first(numbers: Tensor, every: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest logit, and the smallest of the ids that have it: `argmax` may give any of them."""
    greatest = numbers.amax(dim=-1, keepdim=True)
    return greatest, torch.where(numbers == greatest, every, len(every) - 1).amin(dim=-1, keepdim=True)
