"""What the programs themselves take, beside the passes and the link, and where it stands in a configuration.

The values are those of `python -m benchmarks.simulator_reality --overheads` on the machine that the results name: one
drafter that is always right, or users of the target alone, beside a simulation that knows no overheads. They are added
to the keys of what they lengthen, in ms that are not stretched.
"""

from simulator.configuration.configuration import Configuration

EXCHANGE = 3.5  # a request and its reply: both ends, HTTP, and the relay that plays the link
ROUTED = 0.35  # what `specpair router` adds to an exchange (benchmarks/results/routers.txt)
PASS, PASS_SEQUENCE = 0.3, 0.09  # a verifier's pass, and each further sequence of it
STEP = 0.54  # a draft step: the controller's reaction, and what a paced pass sleeps too long


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
