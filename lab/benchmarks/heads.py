"""Which mode is the fastest with a head of the target, and whether mode `auto` finds it. SIMULATED.

Method. The simulator runs examples/simulator/heads.yaml for two machines, three links, one and four texts, and each way
to draft. Printed for each: tokens a second of all texts after the burn-in, in which `auto` learns, and the rate of
`auto` over the best of the others. `auto` has all that drafts; the last two columns are without the draft model on the
server. The bar is 0.95.

    python -m lab.benchmarks.heads [--jobs 2]
"""

from collections.abc import Iterator
from typing import NamedTuple

from lab.benchmarks.harness.report import ROOT, Report, options_of
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import evaluate, processes
from specpair.command_line.table import figure

FILE = ROOT / "examples" / "simulator" / "heads.yaml"
BAR = 0.95
FLAGS = {
    "links": [0.4, 20.0, 60.0],
    "texts": [1, 4],
    "jobs": {"default": 2, "help": "processes (default: %(default)s)"},
}
_SERVER = "devices.verifiers.server"
MACHINES = {
    "27B Q4 on a DGX Spark": [],
    "8B BF16 on an H100": [
        *("sim_time_ms=12000", "burn_in_ms=4000"),  # it writes as many tokens as the other one in six times as long
        *(f"{_SERVER}.{key}" for key in ("model=llama-3.1-8b", "device=h100-sxm", "weights=bf16")),
        *(f"{_SERVER}.draft.{key}" for key in ("device=h100-sxm", "weights=bf16")),
    ],
}
_NO_HEAD, _NO_MODEL = f"{_SERVER}.head=null", f"{_SERVER}.draft=null"
WAYS = {
    "off": ["mode=target"],
    "fused, model": ["mode=fused", _NO_HEAD],
    "fused, head": ["mode=fused", _NO_MODEL],
    "fused, both": ["mode=fused"],
    "remote": ["mode=remote", _NO_HEAD],
    "remote, head": ["mode=remote"],
    "auto": ["mode=auto"],
    "auto, no model": ["mode=auto", _NO_MODEL],
}
WITHOUT_MODEL = ("off", "fused, head", "remote", "remote, head")  # what `auto, no model` is compared with


class Cell(NamedTuple):
    """A machine, a link in ms, and a number of texts."""

    machine: str
    link: float
    texts: int


def cells(links: list[float], texts: list[int]) -> Iterator[Cell]:
    """All cells of the table."""
    for machine in MACHINES:
        for count in texts:
            for link in links:
                yield Cell(machine, link, count)


def main() -> None:
    """Run the experiment."""
    options = options_of(__doc__, FLAGS)
    report = Report("heads", options)
    wanted = [*cells(options.links, options.texts)]
    found = []
    for cell in wanted:
        given = [f"connections.0.rtt_ms={cell.link}", f"workload.users={cell.texts}"]
        found += [read(FILE, [*MACHINES[cell.machine], *given, *way]) for way in WAYS.values()]
    replications = found[0].replications
    jobs = [(each, number) for each in found for number in range(replications)]
    report.line("", "SIMULATED tokens/s of all texts, and auto over the best of the others", "")
    report.line("| machine | texts | RTT, ms | " + " | ".join([*WAYS, "auto / best", "no model"]) + " |")
    report.line("|---" * (5 + len(WAYS)) + "|")
    below = 0
    with processes(options.jobs, evaluate) as run:
        rates = (values["throughput_tps"] for values in run(jobs))
        for cell in wanted:
            by_way = {way: sum(next(rates) for _ in range(replications)) / replications for way in WAYS}
            auto = by_way["auto"] / max(rate for way, rate in by_way.items() if not way.startswith("auto"))
            alone = by_way["auto, no model"] / max(by_way[way] for way in WITHOUT_MODEL)
            shown = " | ".join(figure(each) for each in by_way.values())
            report.line(f"| {cell.machine} | {cell.texts} | {cell.link:g} | {shown} | {auto:.2f} | {alone:.2f} |")
            below += (auto < BAR) + (alone < BAR)
    report.line("", f"SIMULATED: auto is below {BAR} of the best in {below} of {2 * len(wanted)} comparisons")
    report.save()


if __name__ == "__main__":
    main()
