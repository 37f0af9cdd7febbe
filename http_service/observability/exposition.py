"""Writes the metrics of an application as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4  # the text format, which Prometheus takes whatever else it prefers


def exposition(registry: CollectorRegistry) -> bytes:
    """The metrics of `registry` in the text format."""
    return generate_latest(registry)
