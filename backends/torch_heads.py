"""Heads of rows of logits, found where the rows are: a thousand numbers to fetch of each in place of all."""

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.contract import EngineFailure, HeadOf, Logits
from speculation.head import Head


def heads_of(logits: Tensor, wanted: Sequence[HeadOf], places: Sequence[slice]) -> list[list[Head]]:
    """`logits` (rows, kept, vocabulary); `wanted[r]`: of each row's tokens, of which `places[r]` count.

    All of them are looked at, so that the shapes are those of the launch, which a compiler knows.
    """
    below = max(each.below for each in wanted)
    numbers = logits[: len(wanted), :, :below].to(torch.float32)
    if any(each.below < below for each in wanted):
        limits = torch.tensor([each.below for each in wanted], device=logits.device)
        beyond = torch.arange(below, device=logits.device) >= limits[:, None, None]
        numbers = numbers.masked_fill(beyond, -torch.inf)
    temperatures = torch.tensor([each.temperature for each in wanted], dtype=torch.float32, device=logits.device)
    sums = torch.logsumexp(numbers / temperatures[:, None, None], dim=-1)
    size = max(each.size for each in wanted)
    greatest, ids = _first(numbers) if size == 1 else torch.topk(numbers, size, dim=-1)
    greatest, ids, sums = greatest.cpu().numpy(), ids.cpu().numpy(), sums.cpu().numpy()

    def head(row: int, at: int, each: HeadOf) -> Head:
        def fetch() -> Logits:
            try:
                whole: Logits = numbers[row, at, : each.below].cpu().numpy()
            except RuntimeError as error:
                raise EngineFailure(f"PyTorch failed to fetch logits: {str(error).splitlines()[0]}") from error
            return whole

        return Head(ids[row, at], greatest[row, at], each.below, each.temperature, float(sums[row, at]), fetch)

    kept = range(numbers.shape[1])
    return [[head(row, at, each) for at in kept[places[row]]] for row, each in enumerate(wanted)]


def _first(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest logit, and the smallest of the ids that have it: `argmax` may give any of them."""
    greatest = numbers.amax(dim=-1, keepdim=True)
    ids = torch.arange(numbers.shape[-1], device=numbers.device)
    return greatest, torch.where(numbers == greatest, ids, numbers.shape[-1] - 1).amin(dim=-1, keepdim=True)
