"""What all tests share: property tests that try the same examples on every run, and on a slow machine too."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repo", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repo")
