"""Paths in the repository, for tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


PACKAGES = ("verifier_server", "drafter_client", "backends", "models", "specpair", "gateway", "lab")
