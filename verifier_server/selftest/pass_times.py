"""Times forward passes as verifying runs them, by tokens and slots."""

import time
from collections.abc import Callable
from statistics import median

from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.timing_ids import timing_ids

_WIDTHS = (1, 2, 4, 8, 16, 32)  # tokens of each slot
_HELD = 128  # tokens that each slot holds, if the context has room for them
_ROUNDS = 7
_MOST_SECONDS = 60.0


def pass_times(backend: Backend, line: Callable[[str], None]) -> str:
    """Write a table of milliseconds with `line`. Returns the times of one token and of eight of one slot, in words."""
    held = min(_HELD, backend.context_length // 2)
    length = held + max(_WIDTHS)
    ids = [timing_ids(backend.vocabulary.size, (slot + 1) * length)[-length:] for slot in range(backend.slots)]
    for slot in range(backend.slots):
        for start in range(0, held, backend.max_batch_tokens):
            part = ids[slot][start : min(held, start + backend.max_batch_tokens)]
            backend.extend([Entry(slot, start, part, len(part))])
    widths = [width for width in _WIDTHS if held + width <= backend.context_length]
    counts = sorted({1, backend.slots})
    cells = [(count, width) for count in counts for width in widths if count * width <= backend.max_batch_tokens]
    samples: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    began = time.perf_counter()
    for number in range(_ROUNDS + 1):
        if number > 1 and time.perf_counter() - began > _MOST_SECONDS:
            break
        for count, width in cells:
            batch = [Entry(slot, held, ids[slot][held : held + width], 0) for slot in range(count)]
            started = time.perf_counter()
            backend.extend_top_logits(batch, [TopLogitsSpec(1, 1.0, backend.vocabulary.size)] * count)
            if number:  # the first round may prepare what later ones use
                samples[count, width].append(time.perf_counter() - started)
    times = {cell: median(taken) for cell, taken in samples.items()}
    line(f"        ms of a pass, after {held} tokens, each the median of {min(map(len, samples.values()))}")
    line(f"        {'tokens a slot':>14}" + "".join(f"{width:>9}" for width in widths))
    for count in counts:
        shown = (f"{1e3 * times[count, width]:.2f}" if (count, width) in times else "-" for width in widths)
        line(f"        {f'{count} slot' + 's' * (count > 1):>14}" + "".join(f"{text:>9}" for text in shown))
    several = max(width for count, width in cells if count == 1 and width <= 8)
    return f"{1e3 * times[1, 1]:.1f} ms for 1 token of a slot, {1e3 * times[1, several]:.1f} for {several}"
