"""The command `verifier selftest`: tries the engine on this machine, and writes one report to send back."""

import faulthandler
import json
import logging
import os
import platform
import re
import shutil
import sys
import time
import traceback
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import mkdtemp

from pydantic import SecretStr

from backends.machine import available_bytes, cores, printed, processor, total_bytes
from backends.registry import devices_of_draft, load
from backends.trial.checks import CheckFailed, CheckSkipped, Load, devices_of, engine_checks
from backends.trial.tiny_checks import check_tiny
from specpair.command_line.layers import settings_table
from specpair.command_line.parser import Parser
from specpair.command_line.start import run_interruptible
from specpair.engines.backend import Backend
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.extras import installed_version
from specpair.http_service.observability import logs
from specpair.options.option import Option
from specpair.protocol.terminal_text import one_line, several_lines
from verifier_server.engine.choice import TOKEN_ENGINES
from verifier_server.flags import CommandHelp, flags_parser
from verifier_server.generation.draft_model import load_draft_model
from verifier_server.model_files import with_files
from verifier_server.options import OPTIONS
from verifier_server.settings import Settings, SettingsError, read_flags

_STUCK = 600.0  # seconds after which the report says where the program is
_KEY = 8  # characters of a key, at least: a shorter one may be a word such as "none"
_SECRET = re.compile(r"key|token|secret|password|passwd|credentials", re.IGNORECASE)  # in the names of variables
_HIDDEN = "(hidden)"
_OK, _FAILED, _SKIPPED = "ok", "FAILED", "skipped"
_PACKAGES = (
    *("numpy", "torch", "transformers", "tokenizers", "safetensors", "accelerate"),
    *("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla", "nki"),
    *("llama-cpp-python", "gguf", "mlx", "mlx-lm"),
)
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

    def path(text: str) -> Path:
        if not text:
            raise ArgumentTypeError("is empty: name a file")
        return Path(text)

    made = flags_parser(options, _COMMAND)
    told = "file to write, which must not exist (default: selftest-ENGINE-TIME.txt in the working folder)"
    made.add_argument_group("report").add_argument("--report", metavar="FILE", type=path, help=told)
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
        path = options.report or Path(f"selftest-{settings.backend}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt")
        try:
            report = SelftestReport(path, _secrets(settings))
        except FileExistsError:
            raise SettingsError(f"--report: {path} exists: name another file, or move this one away") from None
        except OSError as error:
            raise SettingsError(f"--report: {path} cannot be written: {error.strerror}") from None
    except SettingsError as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 2
    folders: list[str] = []

    def work() -> int:
        folders.append(mkdtemp())  # not a context: the process ends by a signal, if it is interrupted
        return _run(report, settings, Path(folders[0]))

    def end() -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        report.close()

    def interrupted() -> None:
        report.interrupted()
        end()
        print(f"\nverifier: interrupted; the report so far: {one_line(str(report.path))}", file=sys.stderr, flush=True)

    try:
        return run_interruptible(work, interrupted)
    except OSError as error:
        end()
        print(f"verifier: {report.path} cannot be written any more: {error.strerror}", file=sys.stderr)
        return 1
    finally:
        end()


def _secrets(settings: Settings) -> list[str]:
    """Secrets to keep out of the report: the verifier's keys, and other programs' keys in the environment."""
    values = [getattr(settings, name) for name in Settings.secrets()]
    ours = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    return ours + [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= _KEY]


class SelftestReport:
    """Runs checks, writes each result to the report file at once, and prints a line for each.

    The file also gets what libraries and native code print, the stacks at a crash, and those of a long wait. So a
    crash or a killed process leaves every check before it, and the name of that check. Used by one thread at a time.
    """

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        """`path`: a file that does not exist yet; raises OSError otherwise. `secrets`: removed from the file."""
        self.path, self._secrets = path, sorted(filter(None, secrets), key=len, reverse=True)
        # Several processes append to it. A path in a line may hold bytes that are no text.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._file = open(descriptor, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        self._counts: Counter[str] = Counter()  # checks by verdict
        self._current = "no check"  # the name of the check under way
        self._began = time.monotonic()
        _flush()
        self._saved = {stream: os.dup(stream) for stream in (1, 2)}
        for stream in self._saved:
            os.dup2(self._file.fileno(), stream)
        logging.getLogger("gguf").setLevel(logging.WARNING)  # it tells of each file that it writes
        faulthandler.enable(self._file)
        faulthandler.dump_traceback_later(_STUCK, repeat=True, file=self._file)

    def section(self, title: str) -> None:
        """Begin a part of the report."""
        self.line("", f"== {title} ==")
        self._show(title)

    def line(self, *lines: str) -> None:
        """Write lines to the file only. Raises OSError."""
        for line in lines:
            self._file.write(self._hide(several_lines(line)) + "\n")
        self._file.flush()

    def check(self, name: str, run: Callable[[], str]) -> bool:
        """Run a check, which returns its measurement in a few words, or raises. Returns whether it passed.

        Any exception but CheckSkipped is a failure, whose traceback the file gets. Raises OSError for the file.
        """
        self._current = name
        self.line(f"…       {name}")
        began, trace = time.monotonic(), ""
        try:
            verdict, detail = _OK, run()
        except CheckSkipped as reason:
            verdict, detail = _SKIPPED, str(reason)
        except Exception as error:  # whatever an engine raises belongs in the report
            kind = "" if isinstance(error, CheckFailed) else f"{type(error).__name__}: "
            verdict, detail, trace = _FAILED, f"{kind}{error}", traceback.format_exc()
        _flush()
        self._counts[verdict] += 1
        words = one_line(f"{name}: {detail}" if detail else name)
        line = f"{verdict:7} {words}  {time.monotonic() - began:.2f} s"
        self.line(line, *trace.splitlines())
        self._show(self._hide(line))
        self._current = "no check"
        return verdict == _OK

    def finish(self) -> int:
        """Write the summary, and return the exit status: 0 if no check failed, else 1."""
        counts = ", ".join(f"{self._counts[verdict]} {verdict}" for verdict in (_OK, _FAILED, _SKIPPED))
        summary = f"{self._counts.total()} checks in {time.monotonic() - self._began:.0f} s: {counts}"
        self.line("", summary)
        self._show(f"{summary}\nthe report: {one_line(str(self.path))}")
        return int(self._counts[_FAILED] > 0)

    def interrupted(self) -> None:
        """Report the check that was interrupted."""
        with suppress(OSError):
            self.line("", f"interrupted in: {self._current}; the stacks of all threads:")
        faulthandler.dump_traceback(self._file)

    def close(self) -> None:
        """Restore the process's streams, and remove secrets from captured output. May be called again."""
        if self._file.closed:
            return
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
        _flush()
        for stream, saved in self._saved.items():
            os.dup2(saved, stream)
            os.close(saved)
        with suppress(OSError):  # what could not be written stays unwritten
            self._file.close()
        with suppress(OSError):
            text = self.path.read_text(encoding="utf-8", errors="backslashreplace")
            if (hidden := self._hide(several_lines(text))) != text:
                self.path.write_text(hidden, encoding="utf-8")

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def _show(self, line: str) -> None:
        with suppress(OSError):  # the terminal is gone: the file goes on
            os.write(self._saved[1], f"{line}\n".encode(errors="replace"))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # its reader is gone
                stream.flush()


def _run(report: SelftestReport, settings: Settings, folder: Path) -> int:
    def loaded(engine: str, options: LoadOptions) -> Backend:
        try:
            return load(engine, options)
        except ModelLoadError as error:
            raise ModelLoadError(settings.explained(error)) from error

    report.line(f"If it takes long, the stacks of all threads follow every {_STUCK:.0f} s: that alone is no error.")
    report.line("", *settings_table(Settings.model_fields, [settings]).splitlines(), "", *environment())
    # The model comes first: a process claims its devices once, and the tiny one runs on as many where all must.
    devices = _check_model(report, settings, loaded)
    options = settings.load_options()
    if devices is not None:
        options = replace(options, tensor_parallel=devices_of_draft(settings.backend, settings.backend, devices))
    check_tiny(report, settings.backend, options, folder, loaded, beside_model=_has_model(settings))
    return report.finish()


def _check_model(report: SelftestReport, settings: Settings, load: Load) -> int | None:
    """Run all checks on the target model of `settings`, and load the draft model, if there is one.

    Returns how many devices share the model; None if it was not loaded.
    """
    report.section("the model of the settings")
    with ExitStack() as loaded:
        found: list[Settings] = []
        backends: list[Backend] = []

        def load_target() -> str:
            if not _has_model(settings):
                raise CheckSkipped("no model is set: name it with --model or VERIFIER_MODEL to have it measured, too")
            began = time.monotonic()
            found.append(with_files(settings))
            backend = load(settings.backend, found[0].load_options())
            loaded.callback(backend.close)
            backends.append(backend)
            return (
                f"{one_line(backend.model_name)} on {devices_of(backend)}, {backend.slots} slots of "
                f"{backend.context_length} tokens, KV cache of {backend.kv_bytes / 2**20:.0f} MiB; loaded in "
                f"{time.monotonic() - began:.1f} s"
            )

        def load_draft() -> str:
            draft = load_draft_model(found[0], backends[0], lambda _: None, time.perf_counter)
            if draft is None:
                raise CheckSkipped("no draft model is set")
            loaded.callback(draft.close)
            return f"{one_line(draft.name)} for {draft.slots} texts at once, {1e3 * draft.step_time:.2f} ms a step"

        if not report.check("load", load_target):
            return None
        report.check("draft model", load_draft)
        for name, run in engine_checks(backends[0], report.line):
            report.check(name, run)
        return backends[0].devices


def _has_model(settings: Settings) -> bool:
    """Whether the settings name a model that the engine can load, or the engine has a default."""
    named = settings.model is not None or settings.hf is not None or settings.backend == "llama_cpp"
    return named and settings.load_options().model is not None


def environment() -> Iterator[str]:
    """Lines about this machine: hardware, system, packages, and the output of vendors' tools."""
    yield f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"specpair {installed_version()}, Python {platform.python_version()} ({sys.executable})"
    yield platform.platform()
    yield f"{processor()}, {cores()} cores"
    yield f"{available_bytes() / 2**30:.1f} of {total_bytes() / 2**30:.1f} GiB of memory available"
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"
    for name in sorted(os.environ):
        if name.startswith("NEURON_"):
            yield f"{name}={_HIDDEN if _SECRET.search(name) else os.environ[name]}"
    with suppress(ValueError):
        for device in json.loads("\n".join(printed("neuron-ls", "--json-output")) or "[]"):
            device.pop("neuron_processes", None)  # their command lines may hold a key or a prompt
            yield f"neuron-ls: {json.dumps(device)}"
    for command in (("dpkg-query", "-W", "aws-neuronx-*"), ("nvidia-smi", "-L")):
        yield from (f"{command[0]}: {line}" for line in printed(*command))
