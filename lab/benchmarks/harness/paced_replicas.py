"""Replicas on Ray Serve with passes of 50 ms for `replicas`, and of 20 ms for `fail_over`."""

from deploy.ray.verifier import deployment
from lab.benchmarks import fail_over
from lab.benchmarks.replicas import paced

app = deployment(paced)
fast = deployment(fail_over.paced)
