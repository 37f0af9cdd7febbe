"""Replicas on Ray Serve are scaled by the time that requests wait: what one reports, and what follows from it."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from deploy.ray.queue_time import QUEUE_MS, QueueTime, QueueTimePolicy
from specpair.http_service.observability.metrics import ServiceMetrics
from verifier_server.engine.interface import EngineObserver
from verifier_server.observability import EngineFeed, EngineMetrics


def wanted(waits: dict[str, float] | None, target: int = 3, running: int = 3) -> int:
    """How many replicas the policy wants, where `target` are asked for, and `running` run."""
    metrics = None if waits is None else {QUEUE_MS: waits}
    context = SimpleNamespace(target_num_replicas=target, current_num_replicas=running, aggregated_metrics=metrics)
    return QueueTimePolicy(most_ms=200, least_ms=20)(context)[0]


def test_one_more_while_requests_wait_for_long_and_one_less_while_they_hardly_wait() -> None:
    assert wanted({"a": 500.0, "b": 250.0, "c": 90.0}) == 4
    assert wanted({"a": 300.0, "b": 10.0, "c": 10.0}) == 3, "the mean counts: sessions move only with their number"
    assert wanted({"a": 0.0, "b": 0.0, "c": 45.0}) == 2


def test_nothing_changes_while_nothing_is_known_or_replicas_come_or_go() -> None:
    assert wanted(None) == wanted({}) == 3
    assert wanted({"a": 900.0, "b": 900.0}, target=3, running=2) == 3
    assert wanted({"a": 0.0, "b": 0.0}, target=1, running=2) == 1


@pytest.mark.parametrize(("most", "least"), [(20, 20), (20, 30), (20, -1)])
def test_limits_that_leave_nothing_between_them_are_refused(most: float, least: float) -> None:
    with pytest.raises(ValueError, match=f"least_ms is {least}: it must be at least 0, and below most_ms \\({most}\\)"):
        QueueTimePolicy(most, least)


def test_the_queue_time_is_the_mean_of_the_requests_since_the_last_look() -> None:
    metrics = ServiceMetrics(lambda: "model")
    queue_time = QueueTime(metrics.registry)
    assert queue_time.mean_ms() == 0.0, "before the model is loaded"
    observer: EngineObserver = EngineMetrics(metrics, EngineFeed(), lambda _: None, lambda: 0.0, "model")
    assert queue_time.mean_ms() == 0.0, "no request yet"
    observer.waited(0.1)
    observer.waited(0.3)
    assert queue_time.mean_ms() == pytest.approx(200.0)
    assert queue_time.mean_ms() == 0.0
    observer.waited(0.5)
    assert queue_time.mean_ms() == pytest.approx(500.0)


def test_a_registry_without_the_metric_has_no_queue_time() -> None:
    assert QueueTime(CollectorRegistry()).mean_ms() == 0.0
