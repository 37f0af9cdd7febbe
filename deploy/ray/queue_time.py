"""Scales replicas by the time that requests wait for their first pass: the metric of a replica, and the policy.

Serve sends this module to its controller. So it imports nothing of the verifier, which then need not be there.
"""

from typing import Any

from prometheus_client import CollectorRegistry

QUEUE_MS = "queue_ms"  # what replicas report, milliseconds
_METRIC = "specpair_request_queue_time_seconds"


class QueueTime:
    """The queue time of one replica, from its metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waits = registry.restricted_registry([f"{_METRIC}_sum", f"{_METRIC}_count"])
        self._seconds, self._requests = 0.0, 0.0  # since the start of the replica

    def mean_ms(self) -> float:
        """Average wait in milliseconds of requests whose first pass came since the last call; 0 if there were none."""
        seconds, requests = (self._total(suffix) for suffix in ("_sum", "_count"))
        waited, count = seconds - self._seconds, requests - self._requests
        self._seconds, self._requests = seconds, requests
        return 1e3 * waited / count if count else 0.0

    def _total(self, suffix: str) -> float:
        """Over all labels. There is no such metric before the model is loaded."""
        samples = (sample for metric in self._waits.collect() for sample in metric.samples)
        return sum(sample.value for sample in samples if sample.name == _METRIC + suffix)


class QueueTimePolicy:
    """Adds a replica while requests wait longer than `most_ms` on average, removes one while less than `least_ms`.

    How long such a state has to last is for Serve to see to, by `upscale_delay_s` and `downscale_delay_s`.
    """

    def __init__(self, most_ms: float, least_ms: float) -> None:
        """Raises ValueError unless 0 <= `least_ms` < `most_ms`."""
        if not 0 <= least_ms < most_ms:
            raise ValueError(f"least_ms is {least_ms:g}: it must be at least 0, and below most_ms ({most_ms:g})")
        self._most_ms, self._least_ms = most_ms, least_ms

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """The wanted number of replicas, and an empty policy state.

        `context`: Serve's AutoscalingContext; the times in it are means over `look_back_period_s`.
        """
        target: int = context.target_num_replicas
        waits = (context.aggregated_metrics or {}).get(QUEUE_MS, {}).values()
        if not waits or context.current_num_replicas != target:  # those of the last decision still come or go
            return target, {}
        mean = sum(waits) / len(waits)
        return target + (mean > self._most_ms) - (mean < self._least_ms), {}
