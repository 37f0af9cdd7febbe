"""The commented example of the file, and the schema of its keys."""

from pathlib import Path
from typing import Any

from lab.simulator.configuration.configuration import Configuration


def example() -> str:
    """The example."""
    return Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors and other programs."""
    return Configuration.model_json_schema()
