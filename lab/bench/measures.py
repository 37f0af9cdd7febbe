"""What is measured: each measure's key, name, unit, direction, definition and source, said once.

Sources: aiperf 0.13 (its metrics reference), vLLM 0.32 (`vllm bench serve`), LLMPerf (`token_benchmark_ray.py`). Times
are those of `MeasuredRequest`, which begin when a request is sent and end with its last chunk that has text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.bench.records import MeasuredRequest

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a side in a case. `source`: whose definition it is, with the names that others have for it."""

    key: str
    name: str
    unit: str
    better: Better | None
    definition: str
    source: str


TTFT = Measure(
    "ttft_ms",
    "TTFT",
    "ms",
    "lower",
    "time to first token: from sending a request to its first chunk with text",
    "aiperf: time_to_first_token; vLLM: ttft",
)
ITL = Measure(
    "itl_ms",
    "ITL",
    "ms",
    "lower",
    "inter-token latency: (latency - TTFT) / (output tokens - 1), one value a request",
    "aiperf: inter_token_latency; vLLM: tpot, time per output token without the first",
)
CHUNK_GAP = Measure(
    "chunk_gap_ms",
    "chunk gap",
    "ms",
    "lower",
    "time from one chunk to the next, all gaps of all requests; a chunk may hold several tokens",
    "aiperf: inter_chunk_latency; vLLM: itl",
)
LATENCY = Measure(
    "latency_ms",
    "latency",
    "ms",
    "lower",
    "from sending a request to its last chunk with text",
    "aiperf: request_latency; vLLM: e2el; LLMPerf: end_to_end_latency",
)
SPEED = Measure(
    "tokens_per_second",
    "tokens/s",
    "tokens/s",
    "higher",
    "output tokens / latency of a request: what its user sees",
    "LLMPerf: request_output_throughput",
)
LOAD_SPEED = Measure(
    "load_tokens_per_second",
    "load tokens/s",
    "tokens/s",
    "higher",
    "output tokens of all requests / time under load",
    "aiperf: output_token_throughput; vLLM: output_throughput",
)
GOODPUT = Measure(
    "goodput",
    "goodput",
    "requests/s",
    "higher",
    "requests that kept every bound of the service level objective / time under load",
    "vLLM: request_goodput; aiperf: goodput; DistServe, arXiv 2401.09670",
)
GOOD_SHARE = Measure(
    "good_share",
    "kept the SLO",
    "share",
    "higher",
    "requests that kept every bound of the service level objective / all requests, failed ones among them",
    "DistServe, arXiv 2401.09670: SLO attainment",
)
ACCEPTANCE_RATE = Measure(
    "acceptance_rate",
    "acceptance",
    "share",
    "higher",
    "accepted draft tokens / drafted tokens, over all requests that tell",
    "vLLM: spec_decode_num_accepted_tokens / spec_decode_num_draft_tokens",
)
ACCEPTANCE_LENGTH = Measure(
    "mean_acceptance_length",
    "acceptance length",
    "tokens",
    "higher",
    "1 + accepted draft tokens / rounds: tokens that a pass of the target brings",
    "vLLM: mean acceptance length; aiperf: mean_acceptance_length",
)
DRAFTED = Measure(
    "drafted_per_token",
    "drafted/token",
    "tokens",
    None,
    "drafted tokens / output tokens: what was drafted for each token that came out",
    "drafted tokens as vLLM counts them",
)
COST = Measure(
    "cost_per_million_tokens",
    "cost/1M tokens",
    "",
    "lower",
    "price an hour of the side's machines * time under load / output tokens * 1,000,000",
    "in the currency of the given price",
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


def values_of(measure: Measure, requests: Sequence[MeasuredRequest]) -> list[float]:
    """The values of a measure that is in DISTRIBUTED, of requests that did not fail."""
    whole = [request for request in requests if request.failure is None]
    if measure is CHUNK_GAP:
        return [gap for request in whole for gap in request.chunk_gaps_ms]
    value = OF_A_REQUEST[measure]
    return [found for request in whole if (found := value(request)) is not None]
