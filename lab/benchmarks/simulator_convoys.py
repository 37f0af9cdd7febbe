"""Why a server that need not draft serves more clients than its law says: texts go in two groups by turns.

The server of arXiv 2606.25091 drafts and verifies, one after the other. By the times of one more text, one that only
verifies serves 1.2 times its clients at the same rate. In `lab.benchmarks.simulator_theory` it serves 1.5 times as
many. The cause would be that texts that wait while a pass runs are the next pass: then a round has two passes, and the
fixed time of a pass counts twice, which is longer on the server that drafts.

Shown are whether the texts of a pass are those of the next one or those of the next but one, and what refutes the cause
if it is wrong: without two groups the gain is near 1.2, and with more clients it falls as the formula says. Groups end
if links differ a little and the server's batching window waits for answers on their way; either alone changes nothing.
Chance has a fixed seed.

python -m lab.benchmarks.simulator_convoys [--output 200] [--save]
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from lab.benchmarks.harness.report import Report, options_of
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import DeviceKind, Mode, VerifierKind
from lab.simulator.theory.intervals import of_independent
from lab.simulator.theory.reduced import Affine, rates, together
from lab.simulator.theory.speculation import tokens_per_round
from lab.simulator.virtual.network import Network
from verifier_server.engine.arrivals import LONGEST

FLAGS = {"output": 200}
LENGTH, AGREEMENT, SLOTS = 4, 0.8, 1024
VERIFY, DRAFT = Affine(0.018, 0.002), Affine(0.0049, 0.0001)  # of a pass and of a draft step
BOTH = Affine(VERIFY.fixed + LENGTH * DRAFT.fixed, VERIFY.per_text + LENGTH * DRAFT.per_text)
REMOTE = DeviceKind(Network(0.010), Mode.LOCKSTEP, Affine(0.008, 0.0), LENGTH)
UNEVEN = Network(0.0, jitter=0.00005)
_APART = 0.010  # seconds between the answers of two passes, at least; those of one pass are much closer


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("simulator_convoys", options)
    report.line(
        f"a server with passes of {1e3 * BOTH.fixed:g} + {1e3 * BOTH.per_text:g} n ms that drafts, and one with"
        f" {1e3 * VERIFY.fixed:g} + {1e3 * VERIFY.per_text:g} n ms that only verifies;",
        "tokens/s of a client: simulated, by the formula for so many groups; of the texts of a pass, how many are in "
        "the",
        "next one, and in the next but one; the other server: clients at that rate, of a pass's texts the same; the",
        "gain, and by the formula",
    )
    for clients, name, link, window, groups in (
        (60, "answers at once", Network(), LONGEST, 2),
        (60, "uneven links, no window", UNEVEN, 0.0, 2),
        (60, "uneven links, window", UNEVEN, LONGEST, 1),
        (100, "answers at once", Network(), LONGEST, 2),
        (100, "uneven links, window", UNEVEN, LONGEST, 1),
    ):
        device = DeviceKind(link, Mode.LOCKSTEP, Affine(0.0, 0.0), LENGTH)  # its draft steps are in the server's passes
        kind = VerifierKind(BOTH, SLOTS, batching_window=window)
        records = together(clients, kind, device, output=options.output, agreement=AGREEMENT)
        rate = of_independent(rates(records))
        expected = tokens_per_round(AGREEMENT, LENGTH) / _round(BOTH, clients, groups)
        predicted = _gain(clients, groups)
        served = _clients_at(
            rate.mean, round(0.9 * predicted * clients), round(1.15 * predicted * clients), options.output
        )
        others = _remote(served, options.output)
        report.line(
            f"  {clients:3} {name:23} {rate!s:>13} {expected:6.2f}  {_again(records)}"
            f"  {served:3}  {_again(others)}  {served / clients:.2f}  {predicted:.2f}"
        )
    report.save()


def _round(cost: Affine, texts: float, groups: int) -> float:
    """Seconds of a round of texts that go in so many groups by turns."""
    return groups * cost.fixed + texts * cost.per_text


def _gain(clients: int, groups: int) -> float:
    """How many times the clients the other server serves, whose texts go in two groups, at the same rate."""
    return (_round(BOTH, clients, groups) - 2 * VERIFY.fixed) / VERIFY.per_text / clients


def _clients_at(rate: float, least: int, most: int, output: int) -> int:
    """The most clients that the server that only verifies serves at `rate` tokens a second each."""

    def slower(clients: int) -> bool:
        return of_independent(rates(_remote(clients, output))).mean < rate

    return least + bisect_left(range(least, most), True, key=slower) - 1


def _remote(clients: int, output: int) -> list[Record]:
    return together(clients, VerifierKind(VERIFY, SLOTS), REMOTE, output=output, agreement=AGREEMENT)


def _again(records: Sequence[Record]) -> str:
    """Of a pass's texts, the shares that are also in the next pass, and in the next but one, by when their tokens come;
    behind the first fifth of the passes, until the first text ends."""
    end = min(each.end for each in records)
    times = sorted((at, number) for number, each in enumerate(records) for at in each.times if at < end)
    passes = [{times[0][1]}]
    for (before, _), (at, number) in pairwise(times):
        if at - before > _APART:
            passes.append(set())
        passes[-1].add(number)
    kept = passes[len(passes) // 5 : -1]  # the last one may be cut
    shares = (
        fmean(len(one & other) / len(one) for one, other in zip(kept, kept[later:], strict=False)) for later in (1, 2)
    )
    return " ".join(f"{each:4.0%}" for each in shares)


if __name__ == "__main__":
    main()
