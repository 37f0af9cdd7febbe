"""How fast texts could be with the draft tokens that a draft model and lookup in the text have for them."""

from collections.abc import Sequence

from backends.base import Backend
from drafters.draft_model import ModelDrafter
from simulation.static_policies import MeasuredLatencies, Trace, pass_times, upper_bound
from speculation.drafts.ngram import NgramIndex
from speculation.sampling.sampling import Sampling


def bound(
    model: Backend,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    temperature: float,
    pass_ms: Sequence[float],
) -> float:
    """Times the target alone that no chain verification can exceed, if it had the right one of both at every place.

    As for `upper_bound`, nothing but passes takes time; there is one for each place where neither the draft model nor
    lookup has the target's token. `texts`: prompts, and what the target wrote behind each, with its number as the seed.
    `pass_ms`: milliseconds of a pass of the target over 1, 2, … tokens.
    """
    times = MeasuredLatencies(0.0, pass_times(pass_ms), 0.0)
    count = seconds = 0.0
    for seed, (prompt, tokens) in enumerate(texts):
        agrees = agreement(model, prompt, tokens, Sampling(seed, temperature))
        count += len(tokens) - 1
        seconds += (len(tokens) - 1) / upper_bound(Trace(agrees), times)
    return count / seconds * times.verify_ms(0) / 1e3


def agreement(model: Backend, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> list[bool]:
    """For each of `tokens`, whether the draft model or lookup has it, given all before it."""
    drafter, lookup = ModelDrafter(model, sampling), NgramIndex()
    lookup.extend(prompt)
    agrees = []
    for at, token in enumerate(tokens):
        found = lookup.predict()
        drafted = drafter.expand([*prompt, *tokens[:at]], [[]], False).predictions[0]
        agrees.append(token == drafted.token or (found is not None and token == found.token))
        lookup.extend([token])
    return agrees
