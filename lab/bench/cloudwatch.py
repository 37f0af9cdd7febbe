"""Puts the figures of a run into Amazon CloudWatch. Needs boto3, which is imported only here.

Names, dimensions and the median are those of AWS's sample of speculative decoding on Trainium2, so that its dashboards
read them: `Variant` is the side, `TestCase` the case; the inter-token latency is LLMPerf's, latency / output tokens.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from lab.bench.errors import BadPush
from lab.bench.records import MeasuredRequest, Results
from lab.bench.summary import distribution
from specpair.extras import installing

NAMESPACE = "Specpair/Bench"
_AT_ONCE = 1000  # metrics that a call may put

_Value = Callable[[MeasuredRequest], float | None]
_METRICS: dict[str, tuple[str, _Value]] = {
    "TTFT": ("Seconds", lambda request: _seconds(request.ttft_ms)),
    "InterTokenLatency": ("Seconds", lambda request: _seconds(request.latency_per_token_ms)),
    "EndToEndLatency": ("Seconds", lambda request: _seconds(request.latency_ms)),
    "RequestOutputThroughput": ("Count/Second", lambda request: request.tokens_per_second),
    "InputTokens": ("Count", lambda request: request.tokens_in),
    "OutputTokens": ("Count", lambda request: request.tokens_out),
}


def metric_data(results: Results) -> list[dict[str, Any]]:
    """The medians of each side in each case, as `PutMetricData` takes them, at the time the run began."""
    begun = datetime.fromisoformat(results.run.begun)
    found = []
    for case in results.run.cases:
        for side in results.run.sides:
            whole = [
                each
                for each in results.requests
                if (each.case, each.side) == (case.name, side.name) and each.failure is None
            ]
            dimensions = [{"Name": "Variant", "Value": side.name}, {"Name": "TestCase", "Value": case.name}]
            for name, (unit, value) in _METRICS.items():
                values = distribution([told for each in whole if (told := value(each)) is not None])
                if values is not None:
                    found.append(
                        {
                            "MetricName": name,
                            "Dimensions": dimensions,
                            "Timestamp": begun,
                            "Value": values.p50,
                            "Unit": unit,
                        }
                    )
    return found


def put(
    results: Results, namespace: str = NAMESPACE, *, region: str | None = None, endpoint_url: str | None = None
) -> int:
    """Put the metrics. Region and keys are those of the environment, as AWS's tools take them.

    `endpoint_url`: of the service, if it is another than AWS's. Returns how many metrics were put. Raises BadPush.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise BadPush(f"CloudWatch needs boto3: {installing('cloudwatch')}") from None
    data = metric_data(results)
    try:
        client = boto3.client("cloudwatch", region_name=region, endpoint_url=endpoint_url)
        for several in _batches(data):
            client.put_metric_data(Namespace=namespace, MetricData=several)
    except (BotoCoreError, ClientError, ValueError) as error:
        raise BadPush(f"CloudWatch did not take the figures: {error}") from None
    return len(data)


def _batches(data: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[*data[begin : begin + _AT_ONCE]] for begin in range(0, len(data), _AT_ONCE)]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
