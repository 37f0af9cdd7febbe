"""`specpair doctor`: what this machine can do for a pair, what a verifier gains from it, and what is missing."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from drafter_client.cli import flags
from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.cli.steps import INTERRUPTED, api_key, draft_model, engine_of, explained
from drafter_client.display.progress import loading, said_of_loading
from drafter_client.doctor.machine import Finding, engines, of_llama_cpp, this_machine
from drafter_client.doctor.report import DoctorReport
from drafter_client.doctor.speed import WIDE, Gain, ModelSpeed, gain, time_passes
from drafter_client.draft_sources import load_model, named_file
from drafter_client.errors import DrafterError, VerifierUnreachable
from drafter_client.http.addresses import addresses_of
from drafter_client.modes.memory import memory_file
from drafter_client.program_options import ProgramOptions
from drafter_client.program_options import engines as backends
from models import DEFAULT_TARGET
from models.commands.showing import print_json
from specpair.command_line import start
from specpair.command_line.options import add_options
from specpair.command_line.parser import Parser, Switch
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.engines.load_options import STORED
from specpair.protocol.errors import SpecPairError

PROGRAM = "specpair doctor"


def parser() -> Parser:
    """The parser of the command."""
    made = Parser(
        PROGRAM,
        usage="[FLAGS]",
        description="Say what this machine is, which engines run on it and how fast, what a verifier would gain from "
        "its drafter, and what is missing, with the command that mends it. No text is written. Lasting flags are the "
        "drafter's: --verifier is DRAFTER_VERIFIER, and verifier in the table [drafter] of specpair.toml.",
        examples=(
            "specpair doctor",
            "specpair doctor --verifier http://bigbox:8000 --draft-hf Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            "specpair doctor --model llama-8b.gguf --json",
        ),
    )
    made.add_config_flags()
    models = made.add_argument_group("models")
    models.add_argument(
        "--model", type=flags.path, metavar="PATH", help="a model to time beside the draft model (default: the target)"
    )
    add_options(models, ProgramOptions, ["draft_model", "draft_hf", "draft_weights"])
    add_options(made.add_argument_group("verifier"), ProgramOptions, ["verifier", "api_key"])
    backend = {"words": "engine of both models", "choices": backends(drafters=False)}
    flags.engine_flags(made.add_argument_group("engine"), backend=backend)
    made.add_argument_group("output").add_argument("--json", action=Switch, help="one JSON object on standard output")
    return made


def main() -> int:
    """Run the command with the flags of this process behind its name. Returns the exit status."""
    start.catch_interrupts()
    try:
        return run(sys.argv[2:])
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED


def run(arguments: Sequence[str]) -> int:
    """Look, measure and tell. Returns the exit status: 1 if something is missing. Exits with status 2 for bad flags."""
    made = parser()
    options = parsed(made, arguments)
    print_if_asked(made, options)
    report = _report(options)
    if options.json:
        print_json(report.json())
    else:
        report.show(Console(markup=False, highlight=False))
    return 1 if report.findings else 0


def _report(options: argparse.Namespace) -> DoctorReport:
    machine, here, findings = this_machine(), engines(), list[Finding]()
    if options.backend == "llama_cpp":
        findings += of_llama_cpp(here, machine.gpus)
    models, gains, notes = list[ModelSpeed](), list[Gain](), list[str]()
    target = (options.model or DEFAULT_TARGET, None, STORED)
    for path, hf, weights in (target, (options.draft_model, options.draft_hf, options.draft_weights)):
        with _told_in(findings, options):
            models.append(_speed(options, path, hf, weights))
    for address in addresses_of(options.verifier, direct=False):
        with _told_in(findings, options), said_of_loading() as on_wait:
            try:
                gains.append(
                    gain(
                        address.url,
                        draft_model(options),
                        api_key=api_key(options),
                        memory=memory_file(),
                        on_wait=on_wait,
                    )
                )
            except VerifierUnreachable as error:
                if options.settings.origin("verifier") != "default":
                    raise
                notes.append(f"{error} (--verifier names another one)")
    findings += [Finding(each.refusal, "") for each in gains if each.refusal]
    return DoctorReport(machine, here, models, gains, notes, findings)


@contextmanager
def _told_in(findings: list[Finding], options: argparse.Namespace) -> Iterator[None]:
    """A context whose error, if it is one of ours, is a finding. What follows the context goes on."""
    try:
        yield
    except ModelLoadError as error:
        findings.append(Finding(explained(error, options), ""))
    except (SpecPairError, DrafterError, BackendError) as error:
        findings.append(Finding(str(error), ""))


def _speed(options: argparse.Namespace, path: Path, hf: str | None, weights: str) -> ModelSpeed:
    """The speed of the model at `path`, or of the one called `hf` on the hub. Raises ModelLoadError."""
    engine = replace(engine_of(options), weights=weights)
    if hf is not None:
        path = named_file(hf, options.backend, engine, loading)
    with closing(load_model(options.backend, engine, path, progress=loading)) as backend:
        times = time_passes(backend, time.perf_counter)
        size = path.stat().st_size if path.is_file() else 0
        return ModelSpeed(backend.model_name, options.backend, size, backend.threads, times[1], times.get(WIDE))
