"""A real verifier of a configuration, which REALITY names: a file with the configuration, and the kind's number."""

import os
from pathlib import Path

from fastapi import FastAPI

from lab.benchmarks.simulator_reality.engines import Timed
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.text import RuleTarget
from specpair.child_processes.serving import variables
from verifier_server.app import create_app
from verifier_server.flags import from_environment

_FILE, _KIND, _LATE = "REALITY_FILE", "REALITY_KIND", "REALITY_LATE"


def environment(configuration: Path, kind: int, late: Path) -> dict[str, str]:
    """The variables of a verifier.

    `configuration`: a file with one, in JSON.
    `kind`: number among its kinds.
    `late`: a file that gets a line a pass: the time that it took, as a multiple of what it costs.
    """
    read = Configuration.model_validate_json(configuration.read_text())
    chunk = read.devices.verifiers[kind].prefill_chunk
    named = {_FILE: configuration, _KIND: kind, _LATE: late}
    return variables(backend="scripted", prefill_chunk=chunk, max_queue=4096, **named)


def application() -> FastAPI:
    """A verifier by these variables."""
    read = Configuration.model_validate_json(Path(os.environ[_FILE]).read_text())
    kind = read.devices.verifiers[int(os.environ[_KIND])]
    target = RuleTarget(slots=kind.slots, context_length=kind.longest(), max_batch_tokens=kind.batch_tokens)
    target.takes_trees = False  # then drafters that ship send chains, as simulated ones do unless their file says tree
    late = open(os.environ[_LATE], "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives
    engine = Timed(target, kind.pass_cost(), lambda multiple: late.write(f"{multiple:.5f}\n"))
    return create_app(from_environment(), engine)
