"""What the programs themselves take, beside the passes and the link, and where it stands in a configuration.

The values are those that `python -m lab.benchmarks.simulator_reality --overheads` found on the idle machine; what it
finds elsewhere is shown beside them, and is not taken over. It looks at the rounds of one drafter that is always right,
and of users of the target alone, beside the simulation that knows no overheads. The values are added to the keys of
what they lengthen, in ms that are not multiplied.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.record import Record
from specpair.quantile import quantile

EXCHANGE = 2.8  # a request and its reply without jitter: both ends, HTTP, and the relay that plays the link
JITTER = 0.4  # mean of what is random of each of the two
ROUTED = 0.35  # what `specpair router` adds to an exchange (lab/benchmarks/results/routers.txt)
PASS, PASS_SEQUENCE = 0.3, 0.09  # a verifier's pass, and each further sequence of it
STEP = 0.54  # a draft step: the controller's reaction, and what a paced pass sleeps too long

USERS, LENGTHS = 8, (1, 8)  # of the measurement: users of the target, and draft tokens in lockstep
_TARGET = {
    name: ["mode=target", f"devices.drafters.laptop.count={name}", f"workload.users={name}"] for name in (1, USERS)
}
_MEDIAN, _BETWEEN = 1.678, 1.731  # of the sum of two exponential times of mean 1: median, and distance of its quartiles
_LOCKSTEP = {length: [f"gamma={length}"] for length in LENGTHS}


def with_overheads(configuration: Configuration, exchanges: float = 1.0) -> Configuration:
    """A configuration whose passes and links take what the programs add to them.

    `exchanges`: what an exchange takes, as a share of `EXCHANGE`.
    """
    given = configuration.model_dump(mode="json", exclude_none=True)
    verifiers = given["devices"]["verifiers"]
    for each in verifiers:
        each["cost"]["decode_ms"] += PASS
        each["cost"]["per_sequence_ms"] += PASS_SEQUENCE
    for each in given["devices"]["drafters"]:
        each["cost"]["decode_ms"] += STEP
    routed = sum(each["count"] for each in verifiers) > 1
    for each in given["connections"]:
        each["rtt_ms"] += exchanges * EXCHANGE + (ROUTED if routed else 0.0)
        each["jitter_ms"] += JITTER
    return Configuration.model_validate(given)


def found(longer: Callable[[list[str]], list[float]]) -> dict[str, float]:
    """The values, in ms.

    `longer`: by how many ms the quartiles of the rounds of the real run, with these keys replaced, are above the median
        round of the simulated one.
    """
    (_, alone, _), (_, together, _) = (longer(keys) for keys in _TARGET.values())
    (low, short, high), (_, long, _) = (longer(keys) for keys in _LOCKSTEP.values())
    step, jitter = (long - short) / (LENGTHS[1] - LENGTHS[0]), (high - low) / _BETWEEN
    return {
        "PASS": alone,
        "PASS_SEQUENCE": (together - alone) / (USERS - 1),
        "STEP": step,
        "EXCHANGE": short - alone - LENGTHS[0] * step - _MEDIAN * jitter,
        "JITTER": jitter,
    }


def quartiles(records: Sequence[Record]) -> list[float]:
    """Of all rounds, in ms: the times between two arrivals of tokens."""
    times = [sorted(set(record.times)) for record in records]
    rounds = [after - before for each in times for before, after in pairwise(each)]
    return [1e3 * quantile(rounds, share) for share in (0.25, 0.5, 0.75)]
