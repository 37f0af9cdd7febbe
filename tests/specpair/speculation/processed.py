"""Logit processors in the plainest form, in float64, and settings of each alone and of all together."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.sampling.row_changes import LogitProcessor, ProcessorChain, following
from specpair.speculation.sampling.sampling import Logits, Sampling, choose_reference

SETTINGS = {
    "logit_bias": Sampling(3, 0.9, logit_bias={0: 1.5, 1: -2.0, 3: -100.0}),
    "repetition_penalty": Sampling(4, 0.9, repetition_penalty=1.8),
    "frequency_penalty": Sampling(5, 0.9, frequency_penalty=0.7),
    "presence_penalty": Sampling(6, 0.9, presence_penalty=1.3),
    "min_p": Sampling(7, 0.9, min_p=0.2),
    "min_tokens": Sampling(10, 0.9, min_tokens=2),
    "rewards": Sampling(8, 0.9, presence_penalty=-0.5, frequency_penalty=-0.2, repetition_penalty=0.8),
    "all": Sampling(
        *(9, 1.1, 0, 0.95),
        min_p=0.05,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        repetition_penalty=1.2,
        logit_bias={0: 0.5, 2: -1.0},
        min_tokens=1,
    ),
}


def text_processors(
    sampling: Sampling,
    prompt_len: int,
    size: int | None = None,
    masks: Sequence[LogitProcessor] = (),
    ends: Collection[int] = (),
) -> ProcessorChain | None:
    """The processors of a text with these settings, behind `masks`; None if there are none."""
    return following([*masks, *sampling.processors(ends, size)], prompt_len)


def process(
    row: Logits, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], ends: Collection[int] = ()
) -> NDArray[np.float64]:
    """The processed row, which follows `prompt` and `output`. `ends`: ids of the end tokens."""
    logits = row.astype(np.float64)
    if len(output) < sampling.min_tokens:
        logits[[*ends]] = -np.inf
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    for token in {*prompt, *output}:
        above, r = logits[token] > 0, sampling.repetition_penalty
        logits[token] = logits[token] / r if above else logits[token] * r
    for token, times in Counter(output).items():
        logits[token] -= sampling.frequency_penalty * times + sampling.presence_penalty
    if sampling.min_p and not sampling.greedy:
        mass = np.exp((logits - logits.max()) / sampling.temperature)
        logits[mass < sampling.min_p] = -np.inf
    return logits


def plain(
    logits_after: Callable[[Sequence[int]], Logits],
    prompt: Sequence[int],
    count: int,
    sampling: Sampling,
    ends: Collection[int] = (),
) -> list[int]:
    """Up to `count` tokens after `prompt` by plain decoding with logit processors; fewer if one of `ends` comes."""
    output: list[int] = []
    while len(output) < count and not (output and output[-1] in ends):
        row = process(logits_after([*prompt, *output]), sampling, prompt, output, ends).astype(np.float32)
        output.append(choose_reference(row, sampling, len(prompt) + len(output)))
    return output
