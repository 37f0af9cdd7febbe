"""Replicas on Ray Serve with passes of 20 ms: what `benchmarks.ray_scaling` deploys."""

from benchmarks.fail_over import paced
from deploy.ray.verifier import deployment

app = deployment(paced)
