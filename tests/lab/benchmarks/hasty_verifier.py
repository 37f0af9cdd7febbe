"""A paced verifier that gives what is under way no time to end when it is told to stop."""

from lab.simulator.paced.engine import application
from verifier_server import service

service.GRACE = 0.05  # type: ignore[attr-defined]
app = application()
