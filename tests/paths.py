"""Paths in the repository, for tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


PACKAGES = (
    *("verifier_server", "drafter_client", "openai_api", "http_service"),
    *("drafters", "backends", "command_line", "speculation", "models", "specpair"),
)
