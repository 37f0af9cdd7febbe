"""The command `schema`: prints the JSON Schema of a configuration."""

import argparse
import json

from lab.simulator.commands.command import Command
from lab.simulator.configuration.example import schema


def _run(options: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=2))
    return 0


SCHEMA = Command(
    "schema", "[FLAGS]", "Prints the JSON Schema of a configuration, for editors and other programs.", _run
)
