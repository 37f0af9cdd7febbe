"""Reports a latency sweep: a table of all cells, and the required ratios."""

from collections.abc import Iterable, Sequence
from typing import Any

from lab.benchmarks.harness.report import Report

_OFF = ("-overlap", "-in flight", "-corrections", "-self-continue", "-adaptive")
VOID = 0.1  # share of a run's time lost by the machine, above which the run says nothing
_CLOSE = 5  # ms of round trip up to which prepared recovered tokens can pay

Cell = dict[str, Any]


def write(cells: Sequence[Cell], report: Report) -> None:
    """Save the report, without columns whose run the machine disturbed for too long."""
    cells = [{**cell, "ratios": _sound(cell)} for cell in cells]
    report.line(*table(cells), "", *bars(cells))
    report.save()


def table(cells: Iterable[Cell]) -> list[str]:
    """One line a cell: tokens per second of the target alone, then every column as a multiple of it."""
    cells = sorted(cells, key=_sort_key)
    columns = list(
        dict.fromkeys(name for cell in cells for name in [*cell["lost"], *cell["ratios"]] if name != "target")
    )
    head = "".join(f"{name:>16}" for name in columns)
    lines = [f"target draft  RTT drafter agrees  target/s TTFT ms  ours TTFT{head}  policy of the reference"]
    for cell in cells:
        ratios = "".join(
            f"{cell['ratios'][name]:16.2f}" if name in cell["ratios"] else f"{'disturbed' * (name in cell['lost']):>16}"
            for name in columns
        )
        lines.append(
            f"{cell['target_ms']:>6} {cell['draft_ms']:>5} {cell['rtt_ms']:>4g} {cell['drafter']:>7} "
            f"{cell['agreement']:6.2f} {cell['target_rate']:9.2f} {cell['target_ttft_ms']:7.0f} "
            f"{cell['ttft_ms'].get('ours', 0):10.0f}{ratios}  {cell['policy']}"
        )
    return [*lines, f"disturbed: the machine stood still for over {VOID:.0%} of the run; run it again when it is idle"]


def bars(cells: Sequence[Cell]) -> list[str]:
    """The number of cells that reach each required ratio, and the cells that do not."""
    cells = [cell for cell in cells if "ours" in cell["ratios"]]
    lines = []
    for name, against, least, among in (
        ("0.9 of the reference", "reference", 0.9, cells),
        (f"the reference, RTT to {_CLOSE} ms", "reference", 1.0, [c for c in cells if c["rtt_ms"] <= _CLOSE]),
        ("0.98 of the target alone", "", 0.98, cells),
        ("fixed k=4", "k=4", 1.0, cells),
    ):
        both = [cell for cell in among if not against or against in cell["ratios"]]
        shares = {_name(cell): cell["ratios"]["ours"] / cell["ratios"].get(against, 1.0) for cell in both}
        if not shares:
            continue
        short = sorted((share, key) for key, share in shares.items() if share < least)
        mean = sum(shares.values()) / len(shares)
        lines.append(f"at least {name}: {len(shares) - len(short)} of {len(shares)} cells, mean {mean:.3f}")
        lines += [f"    short: {key} {share:.3f}" for share, key in short]
    for name in _OFF:
        both = [cell["ratios"] for cell in cells if name in cell["ratios"] and cell["agreement"] > 0.0]
        if both:
            mean = sum(ratios[name] / ratios["ours"] for ratios in both) / len(both)
            lines.append(f"{name}, over ours, where the drafter ever agrees: mean {mean:.3f} of {len(both)} cells")
    differing = [f"{_name(c)}: {k}" for c in cells for k, same in c["same_text"].items() if not same]
    lines.append(f"texts that differ from the target's own: {len(differing)} {differing or ''}".rstrip())
    return lines


def _sound(cell: Cell) -> dict[str, float]:
    return {name: ratio for name, ratio in cell["ratios"].items() if cell["lost"].get(name, 0.0) <= VOID}


def _sort_key(cell: Cell) -> tuple[float, float, str, float]:
    drafter = f"{1 - cell['agreement']:.1f}{cell['drafter']}"
    return -cell["target_ms"], -cell["draft_ms"], drafter, cell["rtt_ms"]


def _name(cell: Cell) -> str:
    return f"{cell['target_ms']}/{cell['draft_ms']} ms, RTT {cell['rtt_ms']:g}, {cell['drafter']}"


def cell_line(cell: Cell) -> str:
    """The results of a cell, in a line."""
    ratios = "  ".join(f"{name} {value:.2f}" for name, value in cell["ratios"].items())
    return f"{_name(cell)} ({cell['agreement']:.2f}): target {cell['target_rate']:.2f}/s  {ratios}"
