"""The command `verifier selftest`: tries the engine on this machine, and writes one report to send back."""

import faulthandler
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.text import Text

from backends.base import Backend, LoadOptions, ModelLoadError
from backends.registry import devices_of_draft, load
from command_line import interruptible
from command_line.parser import Parser
from command_line.print_config import table
from http_service.observability import logs
from speculation.terminal_text import one_line, several_lines
from verifier_server.flags import Command, flags_parser, read_flags
from verifier_server.selftest.environment import environment
from verifier_server.selftest.model_checks import check_model
from verifier_server.selftest.report import LogLines, Report
from verifier_server.selftest.secrets import hider
from verifier_server.selftest.tiny_checks import check_tiny
from verifier_server.settings import Settings, SettingsError

_STUCK = 600.0  # seconds after which the report says where the program is
_COMMAND = Command(
    "verifier selftest",
    "[FLAGS]",
    "Try the engine on this machine and write one report to send to the makers of this program. If a model is set, it "
    "is loaded and measured. Then a tiny random Llama is compared with a computation in NumPy. Takes every flag, "
    "variable and key of the verifier. The report names hardware, packages and settings, but no key and no text.",
    (
        "verifier selftest --backend neuron_legacy",
        "verifier selftest --backend neuron_legacy --model /models/Llama-3.1-8B-Instruct --report first.txt",
    ),
)


def parser(settings: Sequence[tuple[str, FieldInfo]]) -> Parser:
    """The parser of `verifier selftest`, with the flags of these settings."""
    made = flags_parser(settings, _COMMAND)
    made.add_argument_group("report").add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        help="file to write, which must not exist (default: selftest-ENGINE-TIME.txt in the working folder)",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1 if a check failed, 2 for bad settings or a report that cannot be
    written."""
    logs.configure("text")  # until the settings are read
    try:
        settings, _, options = read_flags(parser(list(Settings.model_fields.items())), arguments)
        logs.configure(settings.log_format)
        report = _opened(options.report, settings)
    except SettingsError as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 2
    with _watched(report):
        return interruptible.run(lambda: _run(report, settings), lambda: _interrupted(report))


def _run(report: Report, settings: Settings) -> int:
    def loaded(engine: str, options: LoadOptions) -> Backend:
        try:
            return load(engine, options)
        except ModelLoadError as error:
            raise ModelLoadError(settings.explained(error)) from error

    report.section("the settings", shown=False)
    report.line(*table(Settings.model_fields, [settings]).splitlines())
    report.section("the machine", shown=False)
    report.line(*environment())
    # The model comes first: a process claims its devices once, and the tiny one runs on as many where all must.
    devices = check_model(report, settings, loaded)
    options = settings.load_options()
    if devices is not None:
        options = replace(options, tensor_parallel=devices_of_draft(settings.backend, settings.backend, devices))
    with TemporaryDirectory() as folder:
        check_tiny(report, settings.backend, options, Path(folder), loaded)
    return report.finish()


def _opened(path: Path | None, settings: Settings, variables: Mapping[str, str] = os.environ) -> Report:
    """The new report. Raises SettingsError if its file exists or cannot be written."""
    path = path or Path(f"selftest-{settings.backend}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt")
    values = [getattr(settings, name) for name in Settings.secrets()]
    secrets = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    secrets += [value for name, value in variables.items() if name.endswith("_API_KEY")]
    try:
        return Report(path, Console(highlight=False), hider(secrets))
    except FileExistsError:
        raise SettingsError(f"--report: {path} exists: name another file, or move this one away") from None
    except OSError as error:
        raise SettingsError(f"--report: {path} cannot be written: {error.strerror}") from None


@contextmanager
def _watched(report: Report) -> Iterator[None]:
    """A context in which the report gets the log lines of the engines, and the stacks of a crash or of a long wait."""
    lines = LogLines(report)
    logger = logging.getLogger("specpair")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    logging.getLogger("gguf").setLevel(logging.WARNING)  # it tells of each file that it writes
    faulthandler.enable(report.file)
    faulthandler.dump_traceback_later(_STUCK, file=report.file)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
        logger.removeHandler(lines)
        logger.setLevel(before)


def _interrupted(report: Report) -> None:
    """Say in the report where the program was, and on the terminal where the report is."""
    report.line("", f"interrupted in: {report.current or 'no check'}; the stacks of all threads:")
    faulthandler.dump_traceback(report.file)
    report.file.flush()
    errors = Console(stderr=True, highlight=False)
    errors.print(Text(f"\nverifier: interrupted; the report so far: {one_line(str(report.path))}"), soft_wrap=True)
