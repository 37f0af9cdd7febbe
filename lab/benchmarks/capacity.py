"""How many clients one verifier carries: 1 to 64 drafters, the target alone, and a verifier that takes one at a time.

Method. The real scheduler and the real drafters' decisions in virtual time (`lab.simulator.known_outputs`, which also
defines texts (agreement 0.8), bounds and gaps). Times are `lab.simulator.paced`'s (target 25 ms, draft 8 ms) with an
RTT of 5 ms. Tokens per second of all clients together, and the 50th and 95th percentile of each client's time between
tokens: shown are the median client's, and the worst client's 95th percentile. Then how many clients get the rate that
the target alone gives to one, or two thirds of it, on average, over what drafting on the server carries (arithmetic).
Expected: (1 + k t_d / t_v) / 1.15 times, for k = 4.

    python -m lab.benchmarks.capacity [--clients 1 2 4 8 16 32 64]
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from lab.benchmarks.harness.report import Report, options_of, plot
from lab.simulator.known_outputs import capacity
from lab.simulator.known_outputs.capacity import FORMS
from lab.simulator.known_outputs.capacity_clients import Setting
from lab.simulator.known_outputs.capacity_model import (
    KnownOutput,
    Metrics,
    lockstep,
    pass_time,
    saturated,
    server_drafting,
    tokens_per_round,
)
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25

SETTING = Setting(TARGET_25, DRAFTER_8)
_SLOW = {"ours, one by one": 8}  # clients beyond which nothing changes but how long the measurement takes
_CARRIED_MOST = 48
_SLACK = 1.15
_HEAD = "clients  form              tokens/s   each     p50     p95   worst  arrivals p95"
FLAGS = {
    "clients": [1, 2, 4, 8, 16, 32, 64],
    "seconds": {"default": SETTING.seconds, "help": "watched"},
}
Row = dict[str, Any]


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("capacity", options)
    setting = Setting(SETTING.target, SETTING.drafter, seconds=options.seconds)
    rows = _virtual(options.clients, setting, report)
    _carried(setting, report)
    report.save()
    _figure(rows, report.beside(".png"))


def _virtual(clients: Sequence[int], setting: Setting, report: Report) -> list[Row]:
    """The table, and its rows."""
    report.line(f"\nVirtual time, {setting.seconds:g} s behind {setting.warm_up:g} s")
    report.line(_HEAD + "  sessions/pass  busy  of all there is  of what lockstep allows")
    rows = []
    for count in clients:
        for name, form in FORMS.items():
            if count <= _SLOW.get(name, count):
                outcome = capacity.measure(form, count, setting)
                bound = saturated(setting.target, count, partial(tokens_per_round, outcome.parts))
                row = {"name": name, **asdict(outcome.metrics), "saturated": bound.rate}
                share = f"{row['rate'] / bound.rate:.3f} (best k {bound.k:2})"
                if name == "k=4":
                    tokens = tokens_per_round(outcome.parts, setting.k)
                    row["lockstep"] = lockstep(setting.target, count, tokens, setting.k, setting.thinking)
                    share += f"  {row['rate'] / row['lockstep']:.3f}"
                rows.append(row)
                report.line(f"{_line(name, outcome.metrics)}  {outcome.sessions:13.1f}  {outcome.busy:4.2f}  {share}")
    return rows


def _carried(setting: Setting, report: Report) -> None:
    """Clients carried at a rate, over what drafting on the server carries."""
    k, alone = setting.k, 1.0 / pass_time(setting.target, 1, 1)
    parts = [(text, len(text.prompt) + 1, len(text.prompt) + 301) for text in map(KnownOutput, range(16))]
    gain = {count: tokens_per_round(parts, count) for count in range(1, 9)}
    expected = (1 + k * pass_time(setting.drafter, 1, 1) / pass_time(setting.target, 1, k + 1)) / _SLACK
    report.line("\nClients that get a rate each, on average: drafting remotely, and on the server")
    for rate in (alone, alone / 1.5):
        server = _on_server(rate, gain[k], k, setting)
        at_best = max(_on_server(rate, gain[count], count, setting) for count in gain)
        report.line(f"{rate:.1f} tokens/s: the server carries {server:.2f} with k={k}, {at_best:.2f} with its best k")
        for name in ("ours", "k=4"):
            count = capacity.carried(FORMS[name], rate, setting, _CARRIED_MOST)
            best = f"{count / at_best:.2f} of its best k"
            report.line(f"{name} carries {count}, {count / server:.2f} times as many ({best}); {expected:.2f} expected")


def _on_server(rate: float, tokens: float, k: int, setting: Setting) -> float:
    """Clients (a fraction counts) to which drafting on the server gives that rate: its cycle is linear in them."""
    one, two = (tokens / server_drafting(setting.target, setting.drafter, n, tokens, k) for n in (1, 2))
    return 1.0 + (tokens / rate - one) / (two - one)


def _line(name: str, found: Metrics) -> str:
    p50, p95, worst, arrivals = (1e3 * each for each in (found.p50, found.p95, found.worst_p95, found.arrivals_p95))
    return (
        f"{found.clients:7}  {name:16}  {found.rate:8.1f}  {found.each:5.1f}  "
        f"{p50:6.1f}  {p95:6.1f}  {worst:6.1f}  {arrivals:12.1f}"
    )


def _figure(rows: Sequence[Row], file: Path) -> None:
    """Draw rates over clients with their bounds, and times between tokens."""

    def curve(axes: Any, name: str, key: str, style: str, factor: float = 1.0, **how: Any) -> None:
        found = [row for row in rows if row["name"] == name]
        axes.plot([row["clients"] for row in found], [factor * row[key] for row in found], style, markersize=4, **how)

    with plot(file, columns=2) as [[rates, times]]:
        for number, name in enumerate(FORMS):
            curve(rates, name, "rate", "o-", label=name, color=f"C{number}")
            curve(times, name, "p50", "o-", 1e3, label=name, color=f"C{number}")
            curve(times, name, "p95", "o--", 1e3, color=f"C{number}")
        curve(rates, "ours", "saturated", "k:", label="bound of any scheduling")
        curve(rates, "k=4", "lockstep", "k--", label="bound of lockstep, k=4")
        rates.set_title("tokens/s, all clients", fontsize=9)
        times.set_title("ms between tokens, p50 and (dashed) p95", fontsize=9)
        ticks = sorted({row["clients"] for row in rows})
        for axes in (rates, times):
            axes.set(xscale="log", yscale="log", xlabel="clients")
            axes.set_xticks(ticks, list(map(str, ticks)))
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            axes.legend(fontsize=6)


if __name__ == "__main__":
    main()
