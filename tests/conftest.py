"""Shared by all tests: reproducible property tests, a private cache folder, and the option --engine."""

import asyncio
import functools
import gc
import importlib.util
import itertools
import os
import signal
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import certifi
import pytest
import uvicorn.server
from hypothesis import HealthCheck, settings

from backends.scripted import ORDER, Script, ScriptedBackend
from specpair.engines.backend import Logits
from specpair.engines.load_options import DTYPES
from tests.examples import PROFILES

for profile, count in PROFILES.items():
    settings.register_profile(
        profile,
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("repo")

ENGINES = {  # the packages that the tests of an engine import
    "torch": ("torch", "transformers", "tokenizers", "accelerate"),
    "mlx": ("mlx", "mlx_lm", "tokenizers"),
    "tnx": ("torch", "transformers", "tokenizers", "safetensors"),
    "vllm": ("vllm",),
    "sglang": ("msgspec",),
    "ray": ("ray",),
    "deploy": ("kubernetes_validate", "jsonschema"),
    "real": (),
    "browser": ("playwright", "axe_playwright_python"),
}
NEEDED = {  # what else the tests of an engine need: the variable that names it, and what it is
    "tnx": ("TNX_SRC", "TNX_SRC does not name transformers-neuronx's source: `TNX_SRC=…/src make test-tnx`"),
    "sglang": (
        "SGLANG_SRC",
        "SGLANG_SRC does not name a folder with SGLang's package: `SGLANG_SRC=… make test-sglang`",
    ),
    "real": ("REAL_MODELS", "REAL_MODELS does not name a folder with real models: `make test-real`"),
}
WORST = "worst difference"  # a property of tests that compare logits: the summary shows it


@pytest.fixture(scope="session", autouse=True)
def _cache_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps tests, and the processes that they start, from using the user's cache folder."""
    before = os.environ.get("XDG_CACHE_HOME")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(autouse=True)
def _nothing_remembered(_cache_folder_of_its_own: Path) -> None:
    """What mode `auto` measured in one test says nothing to the next."""
    (_cache_folder_of_its_own / "specpair" / "modes.json").unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """httpx reads the file of the usual certificates for each client, which takes 25 ms of the processor."""
    create, usual = ssl.create_default_context, {certifi.where(), os.environ.get("SSL_CERT_FILE")}
    read_once = functools.cache(lambda file: create(cafile=file))

    def made(*purpose: ssl.Purpose, **files: Any) -> ssl.SSLContext:
        known = not purpose and files.keys() == {"cafile"} and files["cafile"] in usual
        return read_once(files["cafile"]) if known else create(*purpose, **files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", made)
        yield


@pytest.fixture(scope="session", autouse=True)
def _servers_stop_at_once() -> Iterator[None]:
    """uvicorn looks every 0.1 s whether it should stop, and then pauses for as long: longer than most tests take.

    Here it is woken, and the pauses are shorter.
    """
    quick = SimpleNamespace(**vars(asyncio) | {"sleep": lambda seconds: asyncio.sleep(seconds / 20)})
    wakes: WeakKeyDictionary[uvicorn.Server, Callable[[], object]] = WeakKeyDictionary()
    told: WeakKeyDictionary[uvicorn.Server, bool] = WeakKeyDictionary()

    def tell(server: uvicorn.Server, stop: bool) -> None:
        told[server] = stop
        wake = wakes.pop(server, None) if stop else None
        if wake is not None:
            with suppress(RuntimeError):  # it has seen it by itself, and its loop is closed
                wake()

    async def main_loop(server: uvicorn.Server) -> None:
        woken, loop, turns = asyncio.Event(), asyncio.get_running_loop(), itertools.count()
        wakes[server] = lambda: loop.call_soon_threadsafe(woken.set)
        while not await server.on_tick(next(turns)):
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), 0.1)
        wakes.pop(server, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", quick)
        patch.setattr(uvicorn.Server, "main_loop", main_loop)
        patch.setattr(uvicorn.Server, "should_exit", property(told.__getitem__, tell), raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _toy_logits_are_computed_once() -> Iterator[None]:
    """Tests ask the toy model for the same rows again and again, and computing one takes 0.1 ms."""
    compute, kept = ScriptedBackend.logits_after, dict[tuple[Script, int, tuple[int, ...]], Logits]()

    def logits_after(backend: ScriptedBackend, tokens: Sequence[int]) -> Logits:
        key = backend.script, backend.vocabulary.size, tuple(tokens[-ORDER:])
        found = kept.get(key)
        if found is None:
            found = compute(backend, tokens)
            if len(kept) >= 1 << 14:  # with at most 64 MiB; what the next tests ask for is mostly new
                kept.clear()
            if found.size <= 1024:
                kept[key] = found
        return found.copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedBackend, "logits_after", logits_after)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, help="run the tests of this engine only; fail if it is not installed")
    # For example: pytest tests/conformance --engine torch --torch-device cuda --torch-dtype bfloat16
    parser.addoption(
        "--torch-device", default="cpu", help="device for PyTorch in tests/conformance: cuda, cuda:1, mps …"
    )
    parser.addoption(
        "--torch-dtype", choices=DTYPES, default="float32", help="number type for PyTorch in tests/conformance"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: a test of `make test-slow`, not of `make test`")
    config.addinivalue_line("markers", "property: a test that draws examples, more of them in `make test-slow`")
    config.addinivalue_line("markers", "engine(name): a test that needs more than `make test` installs")
    wanted = config.getoption("--engine")
    missing = [name for name in ENGINES.get(wanted, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"--engine {wanted}: not installed: {', '.join(missing)} (see `make test-{wanted}`)")
    if wanted in NEEDED and not os.environ.get(NEEDED[wanted][0]):
        raise pytest.UsageError(f"--engine {wanted}: {NEEDED[wanted][1]} (CONTRIBUTING.md)")


def pytest_collection() -> None:
    """Modules, tests and their parameters stay: to look for garbage among them takes a twentieth of the whole time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000)  # by default, 7 % of the time goes into looking for the few cycles that tests leave


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --engine, leave out the files that have no test of an engine: to import all takes long."""
    if config.getoption("--engine") is None or not collection_path.name.startswith("test_"):
        return None
    return None if _names_engines(collection_path) else True


@functools.cache
def _names_engines(file: Path) -> bool:
    """Whether the mark `engine` is in a file of tests, or in the conftest.py beside it."""
    places = (path for path in (file, file.with_name("conftest.py")) if path.is_file())
    return any("mark.engine(" in path.read_text(encoding="utf-8") for path in places)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if item.get_closest_marker("engine") is not None and not _names_engines(item.path):
            raise pytest.UsageError(f"{item.path}: write pytest.mark.engine(…) in this file, so that --engine finds it")
    wanted = config.getoption("--engine")
    if wanted is not None:
        others = [item for item in items if all(mark.args[0] != wanted for mark in item.iter_markers("engine"))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A shell starts background processes with SIGINT ignored; a program that a test ran in this process may have left
    # it its default action, which would end all tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for mark in item.iter_markers("engine"):
        for name in ENGINES[mark.args[0]]:
            pytest.importorskip(name, reason=f"{name} is not installed: `make test-{mark.args[0]}`")
        if mark.args[0] in NEEDED and not os.environ.get(NEEDED[mark.args[0]][0]):
            pytest.skip(NEEDED[mark.args[0]][1])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == WORST:
                terminalreporter.write_line(f"{WORST} {value:.1e}: {report.nodeid.rpartition('/')[2]}")
