"""`specpair doctor`: reports what this machine can draft, what a verifier gains from it, and what is missing."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from drafter_client.cli import doctor_checks as checks
from drafter_client.cli import flags
from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.cli.steps import INTERRUPTED, api_key, draft_model, engine_of, explained, told, trust, verifier
from drafter_client.display.progress import loading, verifier_loading
from drafter_client.draft_sources import load_model, named_file
from drafter_client.errors import DrafterError, VerifierUnreachable
from drafter_client.http.addresses import addresses_of
from drafter_client.modes.memory import memory_file
from drafter_client.options import BRANCHES, Mode
from drafter_client.program_options import ProgramOptions
from drafter_client.program_options import engines as backends
from models import DEFAULT_TARGET
from models.commands.showing import print_json
from specpair.command_line import start
from specpair.command_line.options import add_options
from specpair.command_line.parser import Parser, Switch
from specpair.command_line.table import Table, figure, print_table
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.engines.load_options import STORED
from specpair.numbers import sized
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import one_line

PROGRAM = "specpair doctor"


def parser() -> Parser:
    made = Parser(
        PROGRAM,
        usage="[FLAGS]",
        description="Check this machine: its hardware, which engines run and how fast, how much faster a draft "
        "model here makes a verifier, and what is missing, with the command to fix it. Settings are "
        "the drafter's: --verifier is DRAFTER_VERIFIER, and verifier in the table [drafter] of "
        "specpair.toml.",
        examples=(
            "specpair doctor",
            "specpair doctor --verifier http://bigbox:8000 --draft-hf Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            "specpair doctor --model llama-8b.gguf --json",
        ),
    )
    made.add_config_flags()
    models = made.add_argument_group("models")
    models.add_argument(
        "--model",
        type=flags.path,
        metavar="PATH",
        help="model to time besides the draft model (default: the target that ships)",
    )
    add_options(models, ProgramOptions, ["draft_model", "draft_hf", "draft_weights"])
    add_options(made.add_argument_group("verifier"), ProgramOptions, ["verifier", "api_key"])
    backend = {"words": "engine of both models", "choices": backends(drafters=False)}
    flags.engine_flags(made.add_argument_group("engine"), backend=backend)
    made.add_argument_group("output").add_argument(
        "--json", action=Switch, help="print one JSON object on standard output"
    )
    return made


def main() -> int:
    start.catch_interrupts()
    try:
        return run(sys.argv[2:])
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED


def run(arguments: Sequence[str]) -> int:
    """Check, measure, report. Returns the exit status: 1 if something is missing. Exits with status 2 for bad flags."""
    made = parser()
    options = print_if_asked(made, parsed(made, arguments))
    report = _report(options)
    if options.json:  # times in milliseconds, sizes in bytes, rates in tokens a second
        print_json({name: value for name, value in asdict(report).items() if name != "notes"})
    else:
        _show(report, Console(markup=False, highlight=False))
    return 1 if report.missing else 0


@dataclass(slots=True)
class DoctorReport:
    """Findings of the doctor. `missing`: what is missing or wrong; `notes`: remarks on verifiers."""

    machine: checks.Machine
    engines: Sequence[checks.InstalledEngine]
    models: list[checks.ModelSpeed] = field(default_factory=list)
    verifiers: list[checks.Gain] = field(default_factory=list)
    missing: list[checks.Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _show(report: DoctorReport, console: Console) -> None:
    """Print the tables, then what is missing. Control characters from other programs are escaped."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(f" {one_line(line)}".rstrip(), style), soft_wrap=True)

    def part(title: str, *lines: str) -> None:
        console.print(Text(f"\n{one_line(title)}", "bold"))
        for line in lines:
            say(line)

    part("This machine", *_machine_lines(report.machine))
    named = (f"{each.name:<14} {each.version or 'not installed':<14} {each.mend}" for each in report.engines)
    part("Engines", *named)
    if report.models:
        part(f"Models on {report.models[0].engine}")
        print_table(_models_table(report.models), console)
    for found in report.verifiers:
        part(f"The verifier at {found.url}", *_gain_lines(found))
        print_table(_rates_table(found), console)
    for note in report.notes:
        part("No verifier", note)
    part("Missing" if report.missing else "Nothing is missing")
    for finding in report.missing:
        say(finding.what)
        if finding.mend:
            say(f"  {finding.mend}", "bold")


def _report(options: argparse.Namespace) -> DoctorReport:
    report = DoctorReport(checks.this_machine(), checks.engines())
    if options.backend == "llama_cpp":
        report.missing += checks.of_llama_cpp(report.engines, report.machine.gpus)
    target = (options.model or DEFAULT_TARGET, None, STORED, None)
    for model in (target, (options.draft_model, options.draft_hf, options.draft_weights, BRANCHES)):
        with _as_finding(report.missing, options):
            report.models.append(_speed(options, *model))
    url = ""
    with _as_finding(report.missing, options):  # a host that was joined may answer nowhere
        url = verifier(options)
    for address in addresses_of(url, direct=False) if url else ():
        with _as_finding(report.missing, options), verifier_loading() as on_wait:
            try:
                found = checks.gain(
                    address.url,
                    draft_model(options),
                    api_key=api_key(options),
                    trust=trust(options),
                    memory=memory_file(),
                    on_wait=on_wait,
                )
                report.verifiers.append(found)
            except VerifierUnreachable as error:
                if options.settings.origin("verifier") != "default":
                    raise
                report.notes.append(f"{error} (--verifier names another one)")
    report.missing += [checks.Finding(each.refusal) for each in report.verifiers if each.refusal]
    return report


@contextmanager
def _as_finding(findings: list[checks.Finding], options: argparse.Namespace) -> Iterator[None]:
    """A context that turns a SpecPairError, DrafterError or BackendError into a finding."""
    try:
        yield
    except ModelLoadError as error:
        findings.append(checks.Finding(explained(error, options)))
    except (SpecPairError, DrafterError, BackendError) as error:
        findings.append(checks.Finding(told(error)))


def _speed(
    options: argparse.Namespace, path: Path, hf: str | None, weights: str, branches: int | None
) -> checks.ModelSpeed:
    """The speed of the model at `path`, or of the one called `hf` on the hub. Raises ModelLoadError.

    `branches`: as a draft model with slots for so many; None: as a target.
    """
    engine = replace(engine_of(options), weights=weights)
    if hf is not None:
        path = named_file(hf, options.backend, engine, loading)
    loaded = load_model(options.backend, engine, path, branches or 1, progress=loading, drafts=branches is not None)
    with closing(loaded) as backend:
        times = {width: 1e3 * took for width, took in checks.time_passes(backend, time.perf_counter).items()}
        size = path.stat().st_size if path.is_file() else 0
        named = backend.model_name, options.backend
        return checks.ModelSpeed(*named, size, backend.kv_bytes, backend.threads, times[1], times.get(checks.WIDE))


def _machine_lines(machine: checks.Machine) -> list[str]:
    return [
        f"{machine.processor}, {machine.cores} cores; {machine.system}",
        f"{sized(machine.memory)} of memory, {sized(machine.free)} free; engines take {machine.threads} threads",
        *(f"{gpu.kind}: {gpu.name}" for gpu in machine.gpus),
        *([] if machine.gpus else ["no GPU is seen"]),
    ]


def _models_table(models: Sequence[checks.ModelSpeed]) -> Table:
    headings = ("model", "step ms", "tokens/s", f"pass of {checks.WIDE} ms", "in steps", "GB/s", "KV MiB")
    rows = []
    for each in models:
        wide, step = each.pass_of_8_ms, each.step_ms
        passes = (None, None) if wide is None else (wide, wide / step)
        read = each.bytes / step / 1e6 if each.bytes else None  # if a decode step reads each weight once
        rows.append((each.name, *map(figure, (step, 1e3 / step, *passes, read, each.kv_bytes / 2**20))))
    return Table(headings, tuple(rows))


def _gain_lines(gain: checks.Gain) -> list[str]:
    passes = gain.pass_ms
    wide = f", {figure(passes[checks.WIDE - 1])} ms of {checks.WIDE}" if len(passes) >= checks.WIDE else ""
    cost = f"a pass of 1 token takes {figure(passes[0])} ms{wide}" if passes else "it tells no times of passes"
    lines = [f"{gain.model} on {gain.backend}; {cost}", f"the round trip takes {figure(gain.round_trip_ms)} ms"]
    if gain.draft_model is not None:
        step = "" if gain.draft_step_ms is None else f", {figure(gain.draft_step_ms)} ms a token"
        lines.append(f"{gain.draft_model} drafts here{step}")
    if gain.shares_cores:
        lines.append("both ends need the same cores of this machine")
    if gain.fastest == Mode.TARGET:
        lines.append("no mode is expected to be faster than the target alone")
    elif (ratio := gain.ratio(gain.fastest)) is not None:
        lines.append(f"{gain.fastest} is expected to be the fastest: {ratio:.2f} times the target alone")
    return lines


def _rates_table(gain: checks.Gain) -> Table:
    rows = [
        (mode, *map(figure, (rate["likely"], rate["low"], rate["high"], gain.ratio(mode))))
        for mode, rate in sorted(gain.expected.items(), key=lambda item: item[0] != Mode.TARGET)
    ]
    return Table(("mode", "tokens/s, expected", "at least", "at most", "times the target"), tuple(rows))
