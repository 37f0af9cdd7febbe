"""The verifier as a deployment of Ray Serve: every replica is a verifier, and all stand behind one address.

docs/ray.md says how it is run, and why its options are what they are. `serve.yaml` beside this file deploys it.
"""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from deploy.ray.queue_time import QUEUE_MS, QueueTime
from specpair.command_line.start import keep_loaded_objects
from specpair.http_service.observability import logs
from verifier_server.app import create_app
from verifier_server.service import Service
from verifier_server.settings import from_environment


def application() -> FastAPI:
    """The application of one replica, with settings from the environment of its process."""
    logs.configure("text")  # until the settings are read
    settings = from_environment()
    logs.configure(settings.log_format)
    return create_app(settings, on_success=keep_loaded_objects)


class Verifier:
    """One replica."""

    app: FastAPI  # Serve makes it, and runs its lifespan

    def __init__(self) -> None:
        self._queue_time: QueueTime | None = None

    @property
    def _service(self) -> Service:
        service: Service = self.app.state.service
        return service

    async def check_health(self) -> None:
        """Wait for the model. Raises RuntimeError if it could not be loaded, or has failed: then Serve replaces the
        replica.

        Serve sends no requests before the first check has ended. A replica that is overloaded is healthy.
        """
        await asyncio.to_thread(self._service.loader.wait)
        if self._service.condition().status == "failed":
            raise RuntimeError(self._service.health().reason)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The statistics for `QueueTimePolicy`."""
        if self._queue_time is None:
            self._queue_time = QueueTime(self._service.metrics.registry)
        return {QUEUE_MS: self._queue_time.mean_ms()}


def deployment(application: Callable[[], FastAPI]) -> Application:
    """Replicas of a verifier, each with its own `application`, which is made in the process of the replica."""
    return serve.deployment(
        name="verifier",
        max_ongoing_requests=4096,  # the verifier itself says when it is full
        request_router_config=RequestRouterConfig(
            request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter",
            request_router_kwargs={"num_fallback_replicas": 2},  # where texts go on until the ring lacks a lost replica
        ),
    )(serve.ingress(application)(Verifier)).bind()


app = deployment(application)
