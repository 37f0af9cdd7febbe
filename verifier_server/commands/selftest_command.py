"""The command `verifier selftest`: tries the engine on this machine, and writes one report to send back."""

import faulthandler
import logging
import os
import shutil
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from backends.registry import devices_of_draft, load
from backends.trial.checks import CheckSkipped, Load, devices_of, engine_checks
from backends.trial.tiny_checks import check_tiny
from specpair.command_line.layers import settings_table
from specpair.command_line.parser import Parser
from specpair.command_line.start import run_interruptible
from specpair.engines.backend import Backend
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.http_service.observability import logs
from specpair.options.option import Option
from specpair.protocol.terminal_text import one_line, several_lines
from verifier_server.engine.choice import TOKEN_ENGINES
from verifier_server.flags import CommandHelp, flags_parser, read_flags
from verifier_server.generation.draft_model import load_draft_model
from verifier_server.options import OPTIONS
from verifier_server.process.model_files import with_files
from verifier_server.selftest.environment import environment
from verifier_server.selftest.printed import Copied, hider, names_secret
from verifier_server.selftest.report import ReportLost, SelftestReport
from verifier_server.settings import Settings, SettingsError

_STUCK = 600.0  # seconds after which the report says where the program is
_KEY = 8  # characters of another program's key, at least: a shorter one may be a word such as "none"
_COMMAND = CommandHelp(
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

            return run_interruptible(work, interrupted)
    except ReportLost as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 1
    finally:
        with suppress(OSError):  # what could not be written stays unwritten
            report.file.close()


def _run(report: SelftestReport, settings: Settings, folder: Path) -> int:
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
    devices = _check_model(report, settings, loaded)
    options = settings.load_options()
    if devices is not None:
        options = replace(options, tensor_parallel=devices_of_draft(settings.backend, settings.backend, devices))
    check_tiny(report, settings.backend, options, folder, loaded, beside_model=_has_model(settings))
    return report.finish()


def _check_model(report: SelftestReport, settings: Settings, load: Load) -> int | None:
    """Run all checks on the target model of `settings`, and load its draft model beside it, if there is one.

    Returns how many devices share the model; None if it was not loaded.
    """
    report.section("the model of the settings")
    if settings.hf is not None or settings.draft_hf is not None:
        fetched: list[Settings] = []

        def fetch() -> str:
            fetched.append(with_files(settings))
            return "what is named on the hub is in the cache"

        if not report.check("fetch", fetch):
            return None
        (settings,) = fetched
    if not _has_model(settings):
        report.check("load", _no_model)
        return None
    with ExitStack() as loaded:
        backends: list[Backend] = []

        def load_target() -> str:
            began = time.monotonic()
            backend = load(settings.backend, settings.load_options())
            loaded.callback(backend.close)
            backends.append(backend)
            return f"{_described(backend)}; loaded in {time.monotonic() - began:.1f} s"

        def load_draft() -> str:
            draft = load_draft_model(settings, backends[0], lambda _: None, time.perf_counter)
            if draft is None:
                raise CheckSkipped("no draft model is set")
            loaded.callback(draft.close)
            return f"{one_line(draft.name)} for {draft.slots} texts at once, {1e3 * draft.step_time:.2f} ms a step"

        if not report.check("load", load_target):
            return None
        (backend,) = backends
        report.check("draft model", load_draft)
        for name, run in engine_checks(backend, report.line):
            report.check(name, run)
        return backend.devices


def _has_model(settings: Settings) -> bool:
    """Whether the settings name a model that the engine can load, or the engine has a default."""
    if settings.load_options().model is None:
        return False
    return settings.model is not None or settings.backend == "llama_cpp"


def _described(backend: Backend) -> str:
    return (
        f"{one_line(backend.model_name)} on {devices_of(backend)}, {backend.slots} slots of "
        f"{backend.context_length} tokens, KV cache of {backend.kv_bytes / 2**20:.0f} MiB"
    )


def _no_model() -> str:
    raise CheckSkipped("no model is set: name it with --model or VERIFIER_MODEL to have it measured, too")


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


def _opened(path: Path | None, settings: Settings, secrets: Sequence[str]) -> SelftestReport:
    """The new report. Raises SettingsError if its file exists or cannot be written."""
    path = path or Path(f"selftest-{settings.backend}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt")
    try:
        return SelftestReport(path, _console(), hider(secrets))
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
def _watched(report: SelftestReport, secrets: Sequence[str]) -> Iterator[Copied]:
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


def _interrupted(report: SelftestReport, copied: Copied) -> None:
    """Say in the report where the program was, and on the terminal where the report is."""
    with suppress(ReportLost):
        report.line("", f"interrupted in: {report.current or 'no check'}; the stacks of all threads:")
    faulthandler.dump_traceback(report.file)
    copied.end()
    errors = Console(stderr=True, highlight=False)
    errors.print(Text(f"\nverifier: interrupted; the report so far: {one_line(str(report.path))}"), soft_wrap=True)
