"""The measures: key, name, unit, direction and definition of each.

Definitions are those of aiperf 0.13 and vLLM 0.32 (`vllm bench serve`); docs/bench.md has the names that others
have for them. Times are those of `MeasuredRequest`, which begin when a request is sent and end with its last chunk that
has text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.bench.records import MeasuredRequest

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a side in a case."""

    key: str
    name: str
    unit: str
    better: Better | None
    definition: str


TTFT = Measure(
    "ttft_ms",
    "TTFT",
    "ms",
    "lower",
    "time to first token: from sending a request to its first chunk with text",
)
ITL = Measure(
    "itl_ms",
    "ITL",
    "ms",
    "lower",
    "inter-token latency: (latency - TTFT) / (output tokens - 1), one value a request",
)
CHUNK_GAP = Measure(
    "chunk_gap_ms",
    "chunk gap",
    "ms",
    "lower",
    "time from one chunk to the next, all gaps of all requests; a chunk may hold several tokens",
)
LATENCY = Measure(
    "latency_ms",
    "latency",
    "ms",
    "lower",
    "from sending a request to its last chunk with text",
)
SPEED = Measure(
    "tokens_per_second",
    "tokens/s",
    "tokens/s",
    "higher",
    "output tokens / latency of a request: what its user sees",
)
LOAD_SPEED = Measure(
    "load_tokens_per_second",
    "load tokens/s",
    "tokens/s",
    "higher",
    "output tokens of all requests / time under load",
)
GOODPUT = Measure(
    "goodput",
    "goodput",
    "requests/s",
    "higher",
    "requests that kept every bound of the service level objective / time under load",
)
GOOD_SHARE = Measure(
    "good_share",
    "kept the SLO",
    "share",
    "higher",
    "requests that kept every bound of the service level objective / all requests, failed ones among them",
)
ACCEPTANCE_RATE = Measure(
    "acceptance_rate",
    "acceptance",
    "share",
    "higher",
    "accepted draft tokens / drafted tokens, over all requests that tell",
)
ACCEPTANCE_LENGTH = Measure(
    "mean_acceptance_length",
    "acceptance length",
    "tokens",
    "higher",
    "1 + accepted draft tokens / rounds: tokens that a pass of the target brings",
)
DRAFTED = Measure(
    "drafted_per_token",
    "drafted/token",
    "tokens",
    None,
    "drafted tokens / output tokens: what was drafted for each token that came out",
)
COST = Measure(
    "cost_per_million_tokens",
    "cost/1M tokens",
    "",
    "lower",
    "price an hour of the side's machines, in its currency, * time under load / output tokens * 1,000,000",
)

# Measures with a value for each request.
OF_A_REQUEST: dict[Measure, Callable[[MeasuredRequest], float | None]] = {
    TTFT: lambda request: request.ttft_ms,
    ITL: lambda request: request.itl_ms,
    LATENCY: lambda request: request.latency_ms,
    SPEED: lambda request: request.tokens_per_second,
}
DISTRIBUTED = (TTFT, ITL, CHUNK_GAP, LATENCY, SPEED)  # those that a summary has percentiles of
SINGLE = (  # those that a summary has one value of
    *(LOAD_SPEED, GOODPUT, GOOD_SHARE),
    *(ACCEPTANCE_RATE, ACCEPTANCE_LENGTH, DRAFTED, COST),
)
ALL = (*DISTRIBUTED, *SINGLE)
NAMES = {measure.key: measure.name for measure in ALL}


def values_of(measure: Measure, requests: Sequence[MeasuredRequest]) -> list[float]:
    """The values of a measure in DISTRIBUTED, over requests that did not fail."""
    whole = [request for request in requests if request.failure is None]
    if measure is CHUNK_GAP:
        return [gap for request in whole for gap in request.chunk_gaps_ms]
    value = OF_A_REQUEST[measure]
    return [found for request in whole if (found := value(request)) is not None]
