"""What the programs themselves take, beside the passes and the link, and where it stands in a configuration.

The values are medians of `python -m benchmarks.simulator_reality --overheads` on the machine that the results name: one
drafter that is always right, or users of the target alone, beside the simulation that knows no overheads. They are
added to the keys of what they lengthen, in ms that are not multiplied.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from simulator.configuration.configuration import Configuration
from simulator.fleet.record import Record
from specpair.quantile import quantile

EXCHANGE = 3.5  # a request and its reply: both ends, HTTP, and the relay that plays the link
ROUTED = 0.35  # what `specpair router` adds to an exchange (benchmarks/results/routers.txt)
PASS, PASS_SEQUENCE = 0.3, 0.09  # a verifier's pass, and each further sequence of it
STEP = 0.54  # a draft step: the controller's reaction, and what a paced pass sleeps too long

USERS, LENGTHS = 8, (1, 8)  # of the measurement: users of the target, and draft tokens in lockstep
_TARGET = {
    name: ["mode=target", f"devices.drafters.laptop.count={name}", f"workload.users={name}"] for name in (1, USERS)
}
_LOCKSTEP = {length: [f"gamma={length}"] for length in LENGTHS}


def with_overheads(configuration: Configuration) -> Configuration:
    """A configuration whose passes and links take what the programs add to them."""
    given = configuration.model_dump(mode="json", exclude_none=True)
    verifiers = given["devices"]["verifiers"]
    for each in verifiers:
        each["cost"]["decode_ms"] += PASS
        each["cost"]["per_sequence_ms"] += PASS_SEQUENCE
    for each in given["devices"]["drafters"]:
        each["cost"]["decode_ms"] += STEP
    routed = sum(each["count"] for each in verifiers) > 1
    for each in given["connections"]:
        each["rtt_ms"] += EXCHANGE + (ROUTED if routed else 0.0)
    return Configuration.model_validate(given)


def found(longer: Callable[[list[str]], float]) -> dict[str, float]:
    """The values, in ms.

    `longer`: by how many ms the median round of the real run with these keys replaced is longer than the simulated one.
    """
    alone, together = (longer(keys) for keys in _TARGET.values())
    short, long = (longer(keys) for keys in _LOCKSTEP.values())
    step = (long - short) / (LENGTHS[1] - LENGTHS[0])
    return {
        "PASS": alone,
        "PASS_SEQUENCE": (together - alone) / (USERS - 1),
        "STEP": step,
        "EXCHANGE": short - alone - LENGTHS[0] * step,
    }


def median_round(records: Sequence[Record]) -> float:
    """Of all rounds, in ms: the time between two arrivals of tokens."""
    times = [sorted(set(record.times)) for record in records]
    return 1e3 * quantile([after - before for each in times for before, after in pairwise(each)], 0.5)
