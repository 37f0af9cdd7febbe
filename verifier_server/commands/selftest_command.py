"""The command `verifier selftest`: tries the engine on this machine, and writes one report to send back."""

import faulthandler
import logging
import os
import shutil
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from backends.registry import devices_of_draft, load
from specpair.command_line import interruptible
from specpair.command_line.layers import settings_table
from specpair.command_line.parser import Parser
from specpair.engines.backend import Backend
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.http_service.observability import logs
from specpair.options.option import Option
from specpair.protocol.terminal_text import one_line, several_lines
from verifier_server.flags import Command, flags_parser, read_flags
from verifier_server.options import OPTIONS, TOKEN_ENGINES
from verifier_server.selftest.environment import environment
from verifier_server.selftest.model_checks import check_model, has_model
from verifier_server.selftest.printed import Copied
from verifier_server.selftest.report import Report, ReportLost
from verifier_server.selftest.secrets import hider, names_secret
from verifier_server.selftest.tiny_checks import check_tiny
from verifier_server.settings import Settings, SettingsError

_STUCK = 600.0  # seconds after which the report says where the program is
_KEY = 8  # characters of another program's key, at least: a shorter one may be a word such as "none"
_COMMAND = Command(
    "verifier selftest",
    "[FLAGS]",
    "Try the engine on this machine and write one report to send to the makers of this program. If a model is set, it "
    "is loaded and measured. Then a tiny random Llama is compared with a computation in NumPy. Takes every flag, "
    "variable and key of the verifier. The report names hardware, packages, settings and files. Keys are taken out: "
    "look through it before you send it.",
    (
        "verifier selftest --backend neuron_legacy",
        "verifier selftest --backend neuron_legacy --model /models/Llama-3.1-8B-Instruct --report first.txt",
    ),
)


def parser(options: Mapping[str, Option]) -> Parser:
    """The parser of `verifier selftest`, with the flags of these options."""
    made = flags_parser(options, _COMMAND)
    made.add_argument_group("report").add_argument(
        "--report",
        metavar="FILE",
        type=_path,
        help="file to write, which must not exist (default: selftest-ENGINE-TIME.txt in the working folder)",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1 if a check failed, 2 for bad settings or a report that cannot be
    written."""
    logs.configure("text")  # until the settings are read
    try:
        settings, _, options = read_flags(parser(OPTIONS), arguments)
        logs.configure(settings.log_format)
        if settings.backend in TOKEN_ENGINES:
            key = settings.key("backend")
            raise SettingsError(f"{key}: {settings.backend} gives no logits to compare; each start checks it")
        secrets = _secrets(settings)
        _check_temporary_files()
        report = _opened(options.report, settings, secrets)
    except SettingsError as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 2
    try:
        with _watched(report, secrets) as copied:
            folder = mkdtemp()  # not a context: the process ends by a signal, if it is interrupted

            def work() -> int:
                try:
                    return _run(report, settings, Path(folder))
                finally:
                    shutil.rmtree(folder, ignore_errors=True)

            def interrupted() -> None:
                try:
                    _interrupted(report, copied)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)

            return interruptible.run(work, interrupted)
    except ReportLost as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 1
    finally:
        with suppress(OSError):  # what could not be written stays unwritten
            report.file.close()


def _run(report: Report, settings: Settings, folder: Path) -> int:
    def loaded(engine: str, options: LoadOptions) -> Backend:
        try:
            return load(engine, options)
        except ModelLoadError as error:
            raise ModelLoadError(settings.explained(error)) from error

    report.line(f"If it takes long, the stacks of all threads follow every {_STUCK:.0f} s: that alone is no error.")
    report.section("the settings", shown=False)
    report.line(*settings_table(Settings.model_fields, [settings]).splitlines())
    report.section("the machine", shown=False)
    report.line(*environment())
    # The model comes first: a process claims its devices once, and the tiny one runs on as many where all must.
    devices = check_model(report, settings, loaded)
    options = settings.load_options()
    if devices is not None:
        options = replace(options, tensor_parallel=devices_of_draft(settings.backend, settings.backend, devices))
    check_tiny(report, settings.backend, options, folder, loaded, beside_model=has_model(settings))
    return report.finish()


def _secrets(settings: Settings) -> list[str]:
    """What must not be in the report: the verifier's keys, and other programs' from the environment."""
    values = [getattr(settings, name) for name in Settings.secrets()]
    ours = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    others = [value for name, value in os.environ.items() if names_secret(name)]
    return ours + [value for value in others if len(value) >= _KEY]


def _path(text: str) -> Path:
    if not text:
        raise ArgumentTypeError("is empty: name a file")
    return Path(text)


def _check_temporary_files() -> None:
    """Raises SettingsError if there is no folder for temporary files."""
    try:
        gettempdir()
    except OSError as error:
        raise SettingsError(f"TMPDIR: {error.strerror}: name a folder for temporary files") from None


def _opened(path: Path | None, settings: Settings, secrets: Sequence[str]) -> Report:
    """The new report. Raises SettingsError if its file exists or cannot be written."""
    path = path or Path(f"selftest-{settings.backend}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt")
    try:
        return Report(path, _console(), hider(secrets))
    except FileExistsError:
        raise SettingsError(f"--report: {path} exists: name another file, or move this one away") from None
    except OSError as error:
        raise SettingsError(f"--report: {path} cannot be written: {error.strerror}") from None


def _console() -> Console:
    """A console on standard output as it is now, whatever is done with that stream later."""
    encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding  # None: closed by the user
    return _Terminal(
        file=os.fdopen(os.dup(1), "w", encoding=encoding, errors="replace"), width=Console().width, highlight=False
    )


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Print nothing any more. Rich would end the program, and take its standard output away."""
        self.quiet = True


@contextmanager
def _watched(report: Report, secrets: Sequence[str]) -> Iterator[Copied]:
    """A context in which the report gets what is printed, and the stacks of a crash or of a long wait."""
    logging.getLogger("gguf").setLevel(logging.WARNING)  # it tells of each file that it writes
    faulthandler.enable(report.file)
    faulthandler.dump_traceback_later(_STUCK, repeat=True, file=report.file)
    copied = Copied(report.path, secrets)
    report.settle = copied.settle
    try:
        yield copied
    finally:
        copied.end()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()


def _interrupted(report: Report, copied: Copied) -> None:
    """Say in the report where the program was, and on the terminal where the report is."""
    with suppress(ReportLost):
        report.line("", f"interrupted in: {report.current or 'no check'}; the stacks of all threads:")
    faulthandler.dump_traceback(report.file)
    copied.end()
    errors = Console(stderr=True, highlight=False)
    errors.print(Text(f"\nverifier: interrupted; the report so far: {one_line(str(report.path))}"), soft_wrap=True)
