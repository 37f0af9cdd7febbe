"""The command `verifier compile`: compiles the models' programs in advance, by loading them as the server does."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from backends.registry import COMPILING, compiles, load, programs_folder
from specpair.command_line.parser import Parser
from specpair.command_line.start import run_interruptible
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.http_service.observability import logs
from specpair.options.option import Option
from specpair.protocol.terminal_text import one_line, several_lines
from verifier_server.flags import CommandHelp, flags_parser
from verifier_server.generation.draft_model import DRAFT_MODEL, load_draft_model
from verifier_server.model_files import fetch_programs, of_loading, publish_programs, with_files
from verifier_server.options import OPTIONS
from verifier_server.settings import Settings, SettingsError, read_flags

TARGET, DRAFT = "target", "draft"
_COMMAND = CommandHelp(
    "verifier compile",
    "[FLAGS]",
    "Compile the programs of the target model, and of the draft model if there is one, then exit. A verifier with the "
    "same settings finds the programs in the folder compile_cache. If compile_store is set, copies go there when all "
    "programs are compiled. The engines that compile are torch and neuron_legacy. The command takes every flag, "
    "variable and key of the verifier.",
    (
        "verifier compile --backend neuron_legacy --model /models/Llama-3.1-8B-Instruct --slots 4",
        "verifier compile --config specpair.toml",
    ),
)


def parser(options: Mapping[str, Option]) -> Parser:
    """The parser of `verifier compile`, with the flags of these options."""
    return flags_parser(options, _COMMAND)


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1 if a model cannot be loaded, 2 for bad settings, or if no program
    needs compiling."""
    logs.configure("text")  # until the settings are read
    try:
        settings, _, _ = read_flags(parser(OPTIONS), arguments)
        logs.configure(settings.log_format)
        settings = with_files(settings)
        compiled = _checked(settings)
        folders = list(dict.fromkeys(one_line(folder) for folder in compiled.values() if folder is not None))
        kept = f"in {' and '.join(folders)}" if folders else "nowhere: set compile_cache"
        stopped = f"\nverifier: interrupted; compiled programs are kept {kept}"
        names, seconds = run_interruptible(
            lambda: _load(settings, time.monotonic), lambda: print(stopped, file=sys.stderr, flush=True)
        )
        publish_programs(settings)
    except SettingsError as error:
        print(f"verifier: {several_lines(str(error))}", file=sys.stderr)
        return 2
    except BackendError as error:
        reason = several_lines(settings.explained(error))
        print(f"verifier: the model could not be compiled: {reason}", file=sys.stderr)
        return 1
    what = " and ".join(name for model, name in names.items() if model in compiled)
    done = f"compiled: {what}, in {seconds:.0f} s; kept {kept}; start the verifier with the same settings\n"
    with suppress(OSError):  # the programs are compiled, if anybody reads it or not: so without a buffer
        os.write(1, done.encode(errors="replace"))
    return 0


def _checked(settings: Settings) -> dict[str, str | None]:
    """The models to compile, `TARGET` or `DRAFT`, each with its folder of programs; None: no folder.

    Raises SettingsError if no engine would compile a program, ModelLoadError if that cannot be told.
    """
    target = settings.load_options()
    models = {TARGET: (settings.backend, target)}
    if settings.draft_model is not None:
        draft = settings.draft_options(1, 1)
        if settings.draft_engine == settings.backend:  # it is loaded later, and has to leave the target its devices
            draft = replace(draft, tensor_parallel=target.tensor_parallel)
        models[DRAFT] = (settings.draft_engine, draft)
    found = {}
    for model, (engine, options) in models.items():
        try:
            if options.model is not None and not options.model.exists():
                raise ModelLoadError(f"no such model: {options.model}")
            if compiles(engine, options):
                found[model] = programs_folder(engine, options)
        except ModelLoadError as error:
            if model == TARGET:
                raise
            raise ModelLoadError(DRAFT_MODEL + settings.explained(error, of_draft=True)) from error
    if found:
        return found
    if settings.backend in COMPILING:
        raise SettingsError(
            f"{settings.key('compile')}: without it, {settings.backend} compiles nothing on this device: set it, or "
            "start the verifier as it is"
        )
    raise SettingsError(
        f"{settings.key('backend')}: {settings.backend} compiles nothing: start the verifier, it needs no preparation"
    )


def _load(settings: Settings, clock: Callable[[], float]) -> tuple[dict[str, str], float]:
    """Load the models and free them. Returns the names of `TARGET` and `DRAFT`, and the seconds that loading took.
    Raises BackendError."""
    began = clock()
    fetch_programs(settings)
    with ExitStack() as loaded:
        target = load(settings.backend, settings.load_options(), of_loading())
        loaded.callback(target.close)
        names = {TARGET: one_line(target.model_name)}
        draft = load_draft_model(settings, target, of_loading(), clock)
        if draft is not None:
            loaded.callback(draft.close)
            names[DRAFT] = one_line(draft.name)
        return names, clock() - began
