"""Fixtures: those of the drafter's tests, for reports of what it recorded."""

from tests.drafter_client.conftest import drafter, verifier

__all__ = ["drafter", "verifier"]
