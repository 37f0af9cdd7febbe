"""The simulator against theory: fleets whose workload is reduced to a queue, and two published closed forms.

`queues`: M/M/1, M/D/1, M/G/1 (a verifier with one slot), M/G/k (verifiers with one slot, least work first) and M/M/k
(the slots of a batch). `choices`: the power of two choices among 10 to 400 verifiers. `speculation`: the capacity of a
server that need not draft (arXiv 2606.25091), and latency under load (arXiv 2605.15051). Times are in mean service
times, or in seconds where it is said. Intervals are of 95 %, by batch means. Chance has fixed seeds: the figures are
the same on each run.

python -m lab.benchmarks.simulator_theory [--parts queues choices speculation] [--texts 8000] [--save]
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from gateway.balancing.candidate import ordered
from gateway.balancing.policies import Hash, Jsq2
from lab.benchmarks.harness.report import Report, options_of, plot
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.theory.intervals import Interval, batch_means, of_independent
from lab.simulator.theory.queues import (
    in_order_of_arrival,
    m_d_k,
    m_g_1,
    m_g_k,
    passes_of_slots,
    shorter_of_two,
    supermarket,
)
from lab.simulator.theory.reduced import (
    UNIT,
    Affine,
    LeastWork,
    batched,
    client_rates,
    ended,
    geometric,
    key,
    poisson,
    times,
    whole,
)
from lab.simulator.theory.speculation import capacity_gain, latency, mean_rounds, remote_latency
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.network import Network
from lab.simulator.workload.conversation import Conversation, Turn

PARTS = ["queues", "choices", "speculation"]
FLAGS = {"parts": {"default": PARTS, "choices": PARTS}, "texts": 8_000}
_FOUR = (0.25, 0.25, 3.0, 0.5)
SERVICES: dict[str, tuple[Callable[[random.Random], float], float]] = {  # how one is drawn, and the second moment
    "exponential": (lambda rng: rng.expovariate(1.0), 2.0),
    "constant": (lambda rng: 1.0, 1.0),
    "uneven": (lambda rng: rng.choice(_FOUR), sum(each**2 for each in _FOUR) / 4),
}
LOADS = (0.5, 0.8, 0.9, 0.95)
LONG = 2_000_000
_MANY = 4_000_000
LENGTH, AGREEMENT, OUTPUT = 4, 0.8, 100


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    report = Report("simulator_theory", options)
    rows: dict[str, list[tuple[Any, ...]]] = {}
    if "queues" in options.parts:
        rows["queues"] = _queues(report, options.texts)
    if "choices" in options.parts:
        rows["choices"] = _choices(report, options.texts)
    if "speculation" in options.parts:
        _capacity(report)
        rows["speculation"] = _latency(report, options.texts / 50)
    report.save()
    _plot(report, rows)


def _said(found: Interval, theory: float) -> str:
    return f"{found!s:>18}  {theory:8.3f}  {_whether(found, theory)}"


def _whether(found: Interval, theory: float) -> str:
    return "holds" if found.holds(theory) else "misses"


def _long(name: str, load: float, servers: int) -> Interval:
    """The mean time of very many customers by the recursion that the fleet agrees with text by text."""
    draw, _ = SERVICES[name]
    rng = random.Random(f"long/{name}/{load}/{servers}")
    arrivals = poisson(load * servers, LONG, rng)
    return batch_means(in_order_of_arrival(arrivals, [whole(draw(rng)) / UNIT for _ in arrivals], servers))


def _queues(report: Report, texts: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    report.line(
        f"mean time of {texts} texts in the fleet, and how far one is off the recursion of Lindley, or of Kiefer and",
        f"Wolfowitz, with the same arrivals; the recursion with {LONG:,} customers; theory",
        "one slot",
    )
    for name, (draw, second) in SERVICES.items():
        for load in LOADS:
            rng = random.Random(f"{name}/{load}")
            arrivals = poisson(load, texts, rng)
            prompts = [whole(draw(rng)) for _ in arrivals]
            found = times(arrivals, prompts, policy=Hash)
            exact = in_order_of_arrival(arrivals, [each / UNIT for each in prompts], 1)
            long, theory = _long(name, load, 1), m_g_1(load, 1.0, second)
            rows.append((name, load, long, theory))
            report.line(f"  load {load:.2f}, {name:12} {_beside(found, exact)}  {_said(long, theory)}")
    report.line("k verifiers, least work first, load 0.8 (for uneven services theory is an approximation)")
    for name, (draw, second) in SERVICES.items():
        for servers in (2, 4, 8):
            rng = random.Random(f"{name}/{servers}")
            arrivals = poisson(0.8 * servers, texts, rng)
            jobs = {key(number): (at, whole(draw(rng)) / UNIT) for number, at in enumerate(arrivals)}
            services = [service for _, service in jobs.values()]
            prompts = [round(each * UNIT) for each in services]
            found = times(arrivals, prompts, servers=servers, policy=lambda jobs=jobs: LeastWork(jobs))  # type: ignore[misc]
            exact = in_order_of_arrival(arrivals, services, servers)
            rate = 0.8 * servers
            theory = m_d_k(rate, 1.0, servers) if name == "constant" else m_g_k(rate, 1.0, second, servers)
            report.line(
                f"  k = {servers:4}, {name:12} {_beside(found, exact)}  {_said(_long(name, 0.8, servers), theory)}"
            )
    report.line("slots of one batch, texts of 10 passes of 0.1 in the mean, load 0.8: the fleet, theory")
    for slots in (1, 4, 16):
        rng = random.Random(slots)
        arrivals = poisson(0.8 * slots, 2 * texts, rng)
        outputs = [geometric(10.0, rng) for _ in arrivals]
        kind = batched(Affine(0.1, 0.0), slots)
        mean = batch_means(times(arrivals, [2] * len(arrivals), kind=kind, outputs=outputs, policy=Hash))
        report.line(f"  {slots:4} slots {_said(mean, passes_of_slots(0.8 * slots, 10.0, 0.1, slots))}")
    return rows


def _beside(found: Sequence[float], exact: Sequence[float]) -> str:
    off = max(abs(one - other) for one, other in zip(found, exact, strict=True))
    return f"{fmean(found):7.3f}  {off:.0e}"


def _one_queue(load: float, customers: int) -> Interval:
    """The mean time in an M/M/1 queue of very many customers, by Lindley's recursion."""
    rng = np.random.default_rng(1)
    services, gaps = rng.exponential(1.0, customers), rng.exponential(1.0 / load, customers)
    walk = np.cumsum(services[:-1] - gaps[1:])
    waits = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    means = (waits + services[1:])[: customers // 20 * 20 - 20].reshape(20, -1).mean(axis=1)
    return of_independent([float(each) for each in means])


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A verifier in the draw of two, as the router has it."""

    name: str
    weight: float = 1.0


def _choices(report: Report, texts: int) -> list[tuple[Any, ...]]:
    report.line("", "100 verifiers, jsq2: mean time of texts in the fleet, and how far one is off the recursion")
    many = 100
    names = [_Drawn(str(each)) for each in range(many)]
    for load in (0.9, 0.95):
        rng = random.Random(f"{many}/{load}")
        arrivals = poisson(load * many, 2 * texts, rng)
        prompts = [whole(rng.expovariate(1.0)) for _ in arrivals]
        found = times(arrivals, prompts, servers=many, policy=Jsq2)
        drawn = (ordered(key(number), names)[:2] for number in range(len(arrivals)))  # type: ignore[type-var]
        pairs = ((int(one.name), int(other.name)) for one, other in drawn)
        exact = shorter_of_two(arrivals, [each / UNIT for each in prompts], pairs, many)
        report.line(f"  load {load:.2f} {_beside(found, exact)}")
    report.line(f"the recursion with {_MANY:,} customers; the limit for very many verifiers; the gap times verifiers")
    rows: list[tuple[Any, ...]] = []
    for load in (0.9, 0.95, 0.99):
        limit = supermarket(load, 2)
        for many in (10, 100, 200, 400):
            mean = batch_means(_shorter(load, many), warm_up=0.2)
            rows.append((many, load, "jsq2", mean))
            gap = f"{many * (mean.mean - limit):.0f} ± {many * mean.half:.0f}"
            report.line(f"  load {load:.2f}, {many:3} verifiers {mean!s:>18}  {limit:.3f}  {gap}")
    report.line("one random choice: the recursion with 40,000,000 customers; theory")
    for load in (0.9, 0.95, 0.99):  # one of the verifiers: which others there are does not matter to it
        mean = _one_queue(load, 40_000_000)
        rows.append((100, load, "random", mean))
        report.line(f"  load {load:.2f} {_said(mean, supermarket(load, 1))}")
    return rows


def _shorter(load: float, many: int) -> list[float]:
    """Times of very many customers who draw two of so many queues each."""
    rng = random.Random(f"shorter/{many}/{load}")
    arrivals = poisson(load * many, _MANY, rng)
    services = [rng.expovariate(1.0) for _ in arrivals]

    def pairs() -> Iterator[tuple[int, int]]:
        while True:
            first = rng.randrange(many)
            yield first, (first + 1 + rng.randrange(many - 1)) % many

    return shorter_of_two(arrivals, services, pairs(), many)


def _clients_at(rate: float, kind: VerifierKind, device: DeviceKind, least: int) -> int:
    """The most clients that are served at `rate` tokens a second each."""
    most = 4 * least
    while most - least > 1:
        middle = (least + most) // 2
        served = of_independent(client_rates(middle, kind, device, output=OUTPUT, agreement=AGREEMENT)).mean
        least, most = (middle, most) if served >= rate else (least, middle)
    return least


def _capacity(report: Report) -> None:
    report.line(
        "",
        "clients that get the same rate: of a server that drafts and verifies, one after the other, and of one that",
        "only verifies; their ratio, and 1 + k t_d / t_v by the times of one text, and by what one more text adds",
    )
    remote = DeviceKind(Network(0.010), Mode.LOCKSTEP, Affine(0.008, 0.0), LENGTH)
    fused = DeviceKind(Network(), Mode.LOCKSTEP, Affine(0.0, 0.0), LENGTH)  # its draft steps are in the server's passes
    for verify, draft in (
        (Affine(0.0, 0.020), Affine(0.0, 0.002)),
        (Affine(0.0, 0.020), Affine(0.0, 0.005)),
        (Affine(0.018, 0.002), Affine(0.0045, 0.0005)),
        (Affine(0.018, 0.002), Affine(0.0049, 0.0001)),
    ):
        both = Affine(verify.fixed + LENGTH * draft.fixed, verify.per_text + LENGTH * draft.per_text)
        alone = capacity_gain(LENGTH, draft.fixed + draft.per_text, verify.fixed + verify.per_text)
        marginal = capacity_gain(LENGTH, draft.per_text, verify.per_text)
        report.line(f"  pass {_ms(verify)}, draft step {_ms(draft)}")
        for clients in (20, 60):
            rates = client_rates(clients, VerifierKind(both, 1024), fused, output=OUTPUT, agreement=AGREEMENT)
            found = of_independent(rates)
            served = _clients_at(found.mean, VerifierKind(verify, 1024), remote, clients)
            gains = f"{served / clients:.2f}, {alone:.2f}, {marginal:.2f}"
            report.line(f"    {clients} clients at {found} tokens/s each, {served:4}; {gains}")


def _ms(cost: Affine) -> str:
    return f"{1e3 * cost.fixed:g} + {1e3 * cost.per_text:g} n ms"


def _latency(report: Report, seconds: float) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    fixed, more = 0.020, 0.001
    report.line("", f"seconds of a text of {OUTPUT} tokens; pass 20 + 1 n ms: requests/s, simulated, Kong et al., ours")
    for rate in (1.0, 4.0, 6.0, 8.0):
        texts = round(seconds * rate)
        arrivals = poisson(rate, texts, random.Random(f"alone/{rate}"))
        kind = batched(Affine(fixed, more), 1024)
        mean = batch_means(times(arrivals, [2] * texts, kind=kind, outputs=[OUTPUT] * texts, policy=Hash), 10, 0.3)
        theirs = latency(OUTPUT * (fixed + more), OUTPUT * more, rate)
        rows.append(("target alone", rate, mean, theirs, None))
        report.line(f"  target alone  {rate:5.1f} {_said(mean, theirs)}")
    rounds = mean_rounds(OUTPUT - 1, AGREEMENT, LENGTH)
    link, drafting = 0.010, LENGTH * 0.008
    device = DeviceKind(Network(link), Mode.LOCKSTEP, Affine(0.008, 0.0), LENGTH, agreement=constant(AGREEMENT))
    passes = 1.0 + rounds  # the first one reads the prompt and writes a token
    away = link + rounds / passes * drafting
    setting = FleetSetting({"server": batched(Affine(fixed, more), 1024)}, (device,), Hash)
    report.line(f"the same for remote drafters, {passes:.1f} passes a text; load, and how far ours is off")
    for rate in (2.0, 8.0, 16.0, 24.0, 28.0):
        arrivals = poisson(rate, round(seconds * rate), random.Random(f"remote/{rate}"))
        records = ended(setting, (Conversation(str(each), at, (Turn(1, OUTPUT),)) for each, at in enumerate(arrivals)))
        records.sort(key=lambda each: each.sent)
        mean = batch_means([each.end - each.sent for each in records], 10, 0.3)
        theirs = latency(passes * (away + fixed + more), passes * more, rate)
        ours = remote_latency(passes, away, fixed, more, rate)
        rows.append(("remote", rate, mean, theirs, ours))
        report.line(
            f"  remote        {rate:5.1f} {_said(mean, theirs)}  {ours:8.3f}  {_whether(mean, ours)}  "
            f"{rate * passes * more:.2f}  {ours / mean.mean - 1:+.0%}"
        )
    return rows


def _plot(report: Report, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    if set(rows) != set(PARTS):
        return
    with plot(report.beside(".png"), columns=3) as ((queues, choices, load),):
        for name in SERVICES:
            points = [(at, mean, theory) for each, at, mean, theory in rows["queues"] if each == name]
            (line,) = queues.plot([at for at, _, _ in points], [theory for _, _, theory in points], label=name)
            queues.errorbar(
                [at for at, _, _ in points],
                [mean.mean for _, mean, _ in points],
                [mean.half for _, mean, _ in points],
                fmt="o",
                color=line.get_color(),
            )
        queues.set(title="One slot: time over load", xlabel="load", ylabel="mean service times", yscale="log")
        queues.legend()
        at = np.linspace(0.85, 0.99, 60)
        for name, number in (("random", 1), ("jsq2", 2)):
            (line,) = choices.plot(at, [supermarket(each, number) for each in at], label=f"{name}: theory")
            found = [(load, mean) for many, load, each, mean in rows["choices"] if each == name and many == 100]
            choices.errorbar(
                [load for load, _ in found],
                [mean.mean for _, mean in found],
                [mean.half for _, mean in found],
                fmt="o",
                color=line.get_color(),
            )
        choices.set(
            title="100 verifiers: one and two choices", xlabel="load", ylabel="mean service times", yscale="log"
        )
        choices.legend()
        for name, color in (("target alone", "C0"), ("remote", "C1")):
            found5 = [each for each in rows["speculation"] if each[0] == name]
            rates = [each[1] for each in found5]
            load.errorbar(
                rates,
                [each[2].mean for each in found5],
                [each[2].half for each in found5],
                fmt="o",
                color=color,
                label=name,
            )
            load.plot(rates, [each[3] for each in found5], "--", color=color)
            if name == "remote":
                load.plot(rates, [each[4] for each in found5], color=color)
        load.set(title="Latency: dashed Kong et al.", xlabel="requests a second", ylabel="seconds a text", ylim=(0, 18))
        load.legend()


if __name__ == "__main__":
    main()
