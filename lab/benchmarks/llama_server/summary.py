"""What was measured at one temperature, as lines; the best settings; the plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.benchmarks.harness.report import plot
from lab.benchmarks.harness.texts import Written, rate
from lab.benchmarks.llama_server.server import UNTOLD, Completed
from lab.benchmarks.llama_server.settings import ALONE, Setting
from specpair.quantile import quantile

Texts = Mapping[str, Sequence[Written]]  # by way, in the order of the prompts


@dataclass(frozen=True)
class Cell:
    """One draft model at one temperature. All numbers are tokens per second over those of llama-server alone."""

    drafter: str
    temperature: float
    by_n_grams: float  # llama-server's best setting without a draft model
    by_draft_model: float  # its best one with this draft model
    best: str  # name of its best setting of all, alone included
    ours: Mapping[str, float]  # by mode
    bound: float  # what these draft tokens allow at best

    @property
    def theirs(self) -> float:
        """llama-server's best."""
        return max(1.0, self.by_n_grams, self.by_draft_model)


def cell(
    texts: Texts,
    settings: Sequence[Setting],
    drafter: str,
    temperature: float,
    ours: Mapping[str, str],
    bound: float,
) -> Cell:
    """`ours`: the name of our way with this draft model, by mode.
    `bound`: times our target alone.
    """
    alone = rate(texts[ALONE])
    ratios = {each: rate(texts[each.name]) / alone for each in settings if each.drafter in (None, drafter)}
    kinds = {kind: max(ratios[each] for each in ratios if each.kind == kind) for kind in ("n-gram", "draft model")}
    best = max(ratios, key=ratios.__getitem__).name
    by_mode = {mode: rate(texts[name]) / alone for mode, name in ours.items()}
    return Cell(drafter, temperature, kinds["n-gram"], kinds["draft model"], best, by_mode, bound)


def table(texts: Texts, compared: bool) -> list[str]:
    """A line a way. `compared`: whether the texts of all ways should be the same."""
    lines, width = [], max(map(len, texts))
    for way, written in texts.items():
        ratios = [one.rate / other.rate for one, other in zip(written, texts[ALONE], strict=True)]
        drafted, accepted = (sum(getattr(text.stats, name) for text in written) for name in ("drafted", "accepted"))
        parts = [
            f"  {way:{width}} {rate(written):6.1f} tokens/s  {rate(written) / rate(texts[ALONE]):.2f}x alone",
            f" ({quantile(ratios, 0.25):.2f} to {quantile(ratios, 0.75):.2f})",
            f"  acceptance rate {accepted / drafted:4.0%} of {drafted}" if drafted else "  nothing drafted",
        ]
        passes = sum(text.stats.times.verify for text in written)  # llama-server does not tell them
        if drafted and passes:  # of a target alone, the pass over the prompt would count
            parts.append(f"  {passes / sum(text.seconds for text in written):.0%} of the time are passes of the target")
        if compared:
            pairs = zip(written, texts[ALONE], strict=True)
            same = sum(difference(one, other) is None for one, other in pairs)
            parts.append(f"  {same} of {len(written)} texts as alone")
        lines.append("".join(parts))
    return lines


def difference(one: Written, other: Written) -> int | None:
    """Where two texts differ first, as far as their tokens were told; None if they are the same."""
    mine, its = (each.text if isinstance(each, Completed) else each.tokens for each in (one, other))
    for at, pair in enumerate(zip(mine, its, strict=False)):
        if pair[0] != pair[1] and UNTOLD not in pair:
            return at
    return None if len(mine) == len(its) else min(len(mine), len(its))


def clocks(texts: Texts) -> str:
    """How llama-server's own times compare with those of the client."""
    shares = {
        way: sum(text.clock for text in mine) / sum(text.seconds for text in mine)
        for way, written in texts.items()
        if (mine := [text for text in written if isinstance(text, Completed)])
    }
    least, most = min(shares.values()), max(shares.values())
    return f"client's clock over llama-server's own: {least:.3f} to {most:.3f}"


def conclusion(cells: Sequence[Cell]) -> list[str]:
    """A line a cell."""
    modes = list(cells[0].ours)
    names = [f"ours, {mode}" for mode in modes]
    head = f"{'drafter, temperature':20}  {'n-gram':>6}  {'draft model':>11}  {'  '.join(names)}  bound"
    lines = ["times llama-server alone:", f"  {head}  ours over its best"]
    for each in cells:
        ours = "  ".join(f"{each.ours[mode]:{len(name)}.2f}" for mode, name in zip(modes, names, strict=True))
        over = ", ".join(f"{mode} {each.ours[mode] / each.theirs:.2f}" for mode in modes)
        lines.append(
            f"  {f'{each.drafter}, {each.temperature:g}':20}  {each.by_n_grams:6.2f}  {each.by_draft_model:11.2f}"
            f"  {ours}  {each.bound:5.2f}  {over} (its best: {each.best})"
        )
    return lines


def draw(cells: Sequence[Cell], path: Path) -> None:
    """A group of bars for each cell, with its bound as a dash above them."""
    bars = {"llama-server, its best n-gram type": [each.by_n_grams for each in cells]}
    bars["llama-server, its best with the draft model"] = [each.by_draft_model for each in cells]
    bars |= {f"ours, mode {mode}": [each.ours[mode] for each in cells] for mode in cells[0].ours}
    colours = ("0.8", "0.55", "C0", "C9")
    width = 0.84 / len(bars)
    with plot(path, 1, 1) as axes:
        axis = axes[0][0]
        axis.figure.set_size_inches(1.2 * len(cells) + 3.0, 4.2)
        for number, (name, heights) in enumerate(bars.items()):
            places = [place + width * (number - (len(bars) - 1) / 2) for place in range(len(cells))]
            shown = axis.bar(places, heights, width, label=name, color=colours[number % len(colours)])
            axis.bar_label(shown, fmt="%.2f", fontsize=6.5)
        most = [each.bound for each in cells]
        reach = [place - 0.42 for place in range(len(cells))], [place + 0.42 for place in range(len(cells))]
        axis.hlines(most, *reach, colors="black", linewidth=1.0, label="no policy is faster with these draft tokens")
        axis.axhline(1.0, color="0.3", linewidth=0.8, linestyle=":")
        axis.set_xticks(range(len(cells)), [f"{each.drafter}\ntemperature {each.temperature:g}" for each in cells])
        axis.set(ylabel="tokens a second, times llama-server alone", ylim=(0.0, 1.25 * max(most)))
        axis.legend(fontsize=8, ncols=2, loc="upper center")
