"""How fast texts could be with the draft tokens that a draft model and lookup in the text have for them."""

from collections.abc import Sequence

from lab.benchmarks.harness.models import agreement
from lab.simulator.known_outputs.static_policies import MeasuredLatencies, Trace, pass_times, upper_bound
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.lookup import NgramDrafter
from specpair.engines.backend import Backend
from specpair.speculation.sampling.sampling import Sampling


def bound(
    model: Backend,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    temperature: float,
    passes: Sequence[float],
) -> float:
    """Times the target alone that no chain verification can exceed, if it had the right one of both at every place.

    As for `upper_bound`, nothing but passes takes time; there is one for each place where neither the draft model nor
    lookup has the target's token.
    `texts`: prompts, and what the target wrote behind each, with its number as the seed.
    `passes`: seconds of a pass of the target over 1, 2, … tokens.
    """
    times = MeasuredLatencies(0.0, pass_times(passes), 0.0)
    seconds = 0.0
    for seed, (prompt, tokens) in enumerate(texts):
        agrees = either_agrees(model, prompt, tokens, Sampling(seed, temperature))
        seconds += (len(tokens) - 1) / upper_bound(Trace(agrees), times)
    alone = sum(len(tokens) - 1 for _, tokens in texts) * times.verify(0)
    return alone / seconds


def either_agrees(model: Backend, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> list[bool]:
    """For each of `tokens`, whether the draft model or lookup has it, given all before it."""
    text, drafters = [*prompt, *tokens], (ModelDrafter(model, sampling), NgramDrafter())
    return [any(both) for both in zip(*(agreement(each, text, len(prompt)) for each in drafters), strict=True)]
