"""Replicas on Ray Serve with passes of 50 ms, which `benchmarks.replicas` deploys, and of 20 ms, for `fail_over`."""

from benchmarks import fail_over
from benchmarks.replicas import paced
from deploy.ray.verifier import deployment

app = deployment(paced)
fast = deployment(fail_over.paced)
