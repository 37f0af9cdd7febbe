"""Classes that vLLM loads by name into its processes: a scheduler, a proposer, and a worker extension."""

from typing import NamedTuple

NO_TOKEN = -1  # stands in vLLM's tables behind the tokens of a text, and behind the likeliest ones of a token
KEY = "specpair"  # under it, in the `extra_args` of a request and in the `kv_transfer_params` of an output


class StepReport(NamedTuple):
    """A report of a step, sent once, with its first output. Plain values, which processes can exchange."""

    seconds: float
    texts: int  # how many texts shared it
    preempted: int  # as in `CoreStep`
    # Of requests that did not read one token: their draft, the number of tokens read, and `CoreStep.own`.
    others: dict[str, tuple[list[int], int, int]]
