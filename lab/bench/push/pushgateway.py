"""Pushes the figures of a run to a Pushgateway, from which Prometheus reads them. Needs prometheus-client."""

from urllib.error import URLError
from urllib.parse import urlsplit

from lab.bench.errors import BadPush
from lab.bench.statistics import measures
from lab.bench.statistics.analysis import Analysis
from specpair.extras import installing

JOB = "specpair_bench"
_STATISTICS = ("mean", "p50", "p90", "p99")
_TIMEOUT = 30.0  # seconds


def push_to_gateway(analysis: Analysis, url: str) -> int:
    """Push gauges `specpair_bench_…` with the labels `case` and `side`, those of distributions with `statistic`, too.
    Times are in seconds. What an earlier push of the job left there is replaced.

    Returns how many series were pushed. Raises BadPush.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise BadPush(f"--pushgateway: {url!r} is no address: it begins with http:// or https://")
    try:
        from prometheus_client import CollectorRegistry, Gauge, pushadd_to_gateway
    except ImportError:
        raise BadPush(f"a Pushgateway needs prometheus-client: {installing('server')}") from None
    registry = CollectorRegistry()
    count = 0
    for measure in measures.ALL:
        labels = ["case", "side", *(["statistic"] if measure in measures.DISTRIBUTED else [])]
        gauge = Gauge(_name(measure), f"{measure.definition}", labels, registry=registry)
        for (case, side, *statistic), value in _series(analysis, measure).items():
            gauge.labels(case, side, *statistic).set(value / 1000 if measure.unit == "ms" else value)
            count += 1
    try:
        pushadd_to_gateway(url, JOB, registry, timeout=_TIMEOUT)
    except (URLError, OSError) as error:
        raise BadPush(f"the Pushgateway at {url} did not take the figures: {error}") from None
    return count


def _name(measure: measures.Measure) -> str:
    key = measure.key.removesuffix("_ms")
    return f"specpair_bench_{key}_seconds" if measure.unit == "ms" else f"specpair_bench_{key}"


def _series(analysis: Analysis, measure: measures.Measure) -> dict[tuple[str, ...], float]:
    """Values by labels."""
    found: dict[tuple[str, ...], float] = {}
    for each in analysis.summaries:
        if (values := each.distributions.get(measure.key)) is not None:
            found |= {(each.case, each.side, name): getattr(values, name) for name in _STATISTICS}
        if (value := each.values.get(measure.key)) is not None:
            found[each.case, each.side] = value
    return found
