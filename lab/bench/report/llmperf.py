"""The figures of a run in LLMPerf's two files: a flat summary, and the metrics of each request.

Keys are those of LLMPerf's result version 2023-08-31. Its inter-token latency is latency / output tokens: the
first token's time is in it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lab.bench.records import CaseRecord, MeasuredRequest, SideRecord
from lab.bench.statistics.distribution import QUANTILES, distribution
from lab.bench.statistics.summary import Summary

VERSION = "2023-08-31"
_SUMMARISED = (
    *("inter_token_latency_s", "ttft_s", "end_to_end_latency_s", "request_output_throughput_token_per_s"),
    *("number_input_tokens", "number_output_tokens"),
)


def file_stem(case: CaseRecord, side: SideRecord) -> str:
    """The beginning of the names of both files, formed as LLMPerf does, with the case and the side before the model."""
    name = f"{case.name}_{side.name}_{side.model}_{case.input_tokens or 0}_{case.output_tokens or 0}"
    return re.sub(r"-{2,}", "-", re.sub(r"[^\w-]+", "-", name))


def individual_responses(requests: Sequence[MeasuredRequest]) -> list[dict[str, Any]]:
    """The metrics of each request, in seconds."""
    return [_response(each) for each in requests]


def summary(
    case: CaseRecord, side: SideRecord, figures: Summary, requests: Sequence[MeasuredRequest], timestamp: float
) -> dict[str, Any]:
    """The flat summary of a side in a case. `timestamp`: Unix time in seconds."""
    whole = [_response(each) for each in requests if each.failure is None]
    failures = [each.failure for each in requests if each.failure is not None]
    results: dict[str, Any] = {}
    for key in _SUMMARISED:
        found = distribution([each[key] for each in whole if each[key] is not None])
        results |= {f"{key}_quantiles_p{at}": getattr(found, f"p{at}", None) for at in QUANTILES}
        results |= {f"{key}_{name}": getattr(found, name, None) for name in ("mean", "min", "max", "stddev")}
    seconds = figures.loaded_s
    results |= {
        "num_requests_started": len(requests),
        "error_rate": len(failures) / len(requests) if requests else 0,
        "number_errors": len(failures),
        "error_code_frequency": str(dict(Counter(each.status or each.kind for each in failures))),
        "mean_output_throughput_token_per_s": figures.tokens_out / seconds if seconds else None,
        "num_completed_requests": len(whole),
        "num_completed_requests_per_min": len(whole) / seconds * 60 if seconds else None,
    }
    return {
        "version": VERSION,
        "name": f"{file_stem(case, side)}_summary",
        "model": side.model,
        "mean_input_tokens": case.input_tokens,
        "stddev_input_tokens": 0,
        "mean_output_tokens": case.output_tokens,
        "stddev_output_tokens": 0,
        "num_concurrent_requests": case.concurrency,
        **{f"additional_sampling_params_{key}": value for key, value in case.sampling.items()},
        **{f"results_{key}": value for key, value in results.items()},
        "timestamp": int(timestamp),
    }


def _response(request: MeasuredRequest) -> dict[str, Any]:
    failure = request.failure
    return {
        "error_code": None if failure is None else failure.status or failure.kind,
        "error_msg": "" if failure is None else failure.message,
        "inter_token_latency_s": _seconds(request.latency_per_token_ms),
        "ttft_s": _seconds(request.ttft_ms),
        "end_to_end_latency_s": _seconds(request.latency_ms),
        "request_output_throughput_token_per_s": request.tokens_per_second,
        "number_total_tokens": None
        if request.tokens_in is None or request.tokens_out is None
        else request.tokens_in + request.tokens_out,
        "number_output_tokens": request.tokens_out,
        "number_input_tokens": request.tokens_in,
    }


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
