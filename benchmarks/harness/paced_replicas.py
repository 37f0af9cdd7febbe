"""Replicas on Ray Serve with passes of 50 ms: what `benchmarks.replicas` deploys."""

from benchmarks.replicas import paced
from deploy.ray.verifier import deployment

app = deployment(paced)
