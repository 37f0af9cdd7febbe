"""What was measured with recorded texts, as multiples of the target alone, by kind of text; and what trees bring."""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import fmean

COLUMNS = ("llama", "vllm", "static", "static tree", "chains", "trees", "fused", "chain bound", "tree bound")
_BEST_OF_KIND = ("vllm", "static tree")  # columns whose policy is the best for all texts of a kind
_OFTEN = 0.65  # share of the places from which on the draft model's choice is often the target's

Times = dict[str, float]  # seconds of a text behind its first token, by column, and by policy where there are several
Multiples = dict[str, float]  # of the target alone, by column


def multiples(times: Sequence[Times]) -> Multiples:
    """Of the rates of a kind's texts together."""
    total = {name: sum(each[name] for each in times) for name in times[0]}
    for column in _BEST_OF_KIND:
        total[column] = min(seconds for name, seconds in total.items() if name.startswith(f"{column} "))
    return {name: total["alone"] / total[name] for name in COLUMNS}


def table(kinds: Mapping[str, Multiples]) -> list[str]:
    """A line for each kind, and their geometric mean."""
    lines = [f"{'':12}" + "".join(f"{each:>13}" for each in COLUMNS)]
    lines += [f"{kind:12}" + "".join(f"{each[name]:13.2f}" for name in COLUMNS) for kind, each in kinds.items()]
    means = {name: _mean(each[name] for each in kinds.values()) for name in COLUMNS}
    return [*lines, f"{'all':12}" + "".join(f"{means[name]:13.2f}" for name in COLUMNS)]


def trees_over_chains(cells: Mapping[str, Mapping[str, Multiples]], share: Mapping[str, float]) -> list[str]:
    """A line for each cell: what trees bring over chains where the draft model is often right, and where it is not.

    `cells`: the multiples of each kind, by the cell's name.
    `share`: of the places at which the draft model's choice is the target's, by kind.
    """
    seldom = [kind for kind, each in share.items() if each < _OFTEN]
    often = [kind for kind in share if kind not in seldom]
    groups = {f"under {_OFTEN:g}": seldom, f"from {_OFTEN:g} on": often}
    named = {name: group for name, group in groups.items() if group}
    lines = [f"{name}: " + ", ".join(f"{kind} {share[kind]:.2f}" for kind in group) for name, group in named.items()]
    lines.append(f"{'':40}" + "".join(f"{name:>14}{'least':>8}{'bounds':>8}" for name in named))
    for cell, kinds in cells.items():
        line = f"{cell:40}"
        for group in named.values():
            ratios = [kinds[kind]["trees"] / kinds[kind]["chains"] for kind in group]
            bounds = [kinds[kind]["tree bound"] / kinds[kind]["chain bound"] for kind in group]
            line += f"{_mean(ratios):14.2f}{min(ratios):8.2f}{_mean(bounds):8.2f}"
        lines.append(line)
    return lines


def _mean(ratios: Iterable[float]) -> float:
    return exp(fmean(map(log, ratios)))
