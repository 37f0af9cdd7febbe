"""Loading reports why a model cannot be loaded and what to do, without a crash."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from backends import registry
from backends.llama_cpp.library import lib
from backends.scripted import ScriptedBackend
from models import DEFAULT_TARGET
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.plugins import BACKENDS
from tests.distributions import distribute
from tests.paths import ROOT
from verifier_server.settings import Settings


def refusal(options: LoadOptions, name: str = "llama_cpp") -> str:
    with pytest.raises(ModelLoadError) as caught:
        registry.load(name, options)
    return str(caught.value)


def small(**options: object) -> LoadOptions:
    """Options for the shipped target that make an unexpected successful load cheap."""
    return LoadOptions(**{"model": DEFAULT_TARGET, "context_length": 64, "threads": 1, **options})  # type: ignore[arg-type]


def test_scripted_engine_takes_a_number_as_its_model() -> None:
    progress: list[float] = []
    backend = registry.load(
        "scripted", LoadOptions(model=Path("7"), slots=2, context_length=99, batch_tokens=9), progress.append
    )
    assert isinstance(backend, ScriptedBackend)
    assert (backend.script.seed, backend.model_name) == (7, "scripted-7")
    assert (backend.slots, backend.context_length, backend.max_batch_tokens) == (2, 99, 9)
    assert progress == [1.0]
    assert refusal(LoadOptions(model=Path("a.gguf")), "scripted") == (
        "the scripted backend takes a number as its model, got 'a.gguf'"
    )


def test_missing_model_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    assert refusal(LoadOptions(path)) == f"no such model file: {path}"
    assert refusal(LoadOptions(Path("a" * 300))).startswith("no such model file: aaa")
    assert refusal(LoadOptions(tmp_path)) == (
        f"{tmp_path} is a folder, and llama.cpp reads a GGUF file: the torch backend reads folders"
    )


@pytest.mark.parametrize("name", ["llama_cpp", "scripted"])
def test_too_short_context_is_refused(name: str) -> None:
    model = DEFAULT_TARGET if name == "llama_cpp" else None
    assert refusal(LoadOptions(model, context_length=1), name).startswith("context is 1, a prompt and an answer take")


@pytest.mark.parametrize("name", ["llama_cpp", "scripted"])
def test_unsupported_options_are_refused(name: str) -> None:
    for choice in ({"device": "cuda"}, {"dtype": "float16"}, {"compile": True}, {"tensor_parallel": 2}):
        expected = f"{next(iter(choice))}: the {name} backend has no such choice, leave it out"
        assert refusal(small(**choice), name) == expected
    small(tensor_parallel=1).refuse(name, "tensor_parallel")


@pytest.mark.parametrize("name", ["torch", "mlx"])
def test_missing_library_names_the_install_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    engine = [each for each in sys.modules if each.startswith(f"backends.{name}")]
    for ours in engine:
        if not hasattr(sys.modules[ours], "__path__"):  # a package would come back without its modules
            monkeypatch.delitem(sys.modules, ours)
    message = refusal(LoadOptions(), name).replace("mlx.core", "mlx")  # Python names one or the other
    install = f"{sys.executable} -m pip install -r requirements/{name}.txt"
    assert message == f"the {name} backend needs {name}, which is not installed: {install}"


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 and so on", b"version https://git-lfs"])
def test_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert refusal(LoadOptions(path)) == f"{path} is not a GGUF file: it does not begin with the letters GGUF"


@pytest.mark.parametrize("share", [0.00001, 0.001, 0.5, 0.999999])
def test_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    whole = DEFAULT_TARGET.read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[: max(4, int(len(whole) * share))])
    told = refusal(LoadOptions(path))
    assert told.startswith(f"{path} is ") and "incomplete: fetch it again (" in told and "\n" not in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (small(kv_type="q5_1"), "kv_type 'q5_1' is unknown: choose one of f32, f16, q8_0, q4_0"),
        (small(slots=257), "slots is 257, llama.cpp takes 1 to 256"),
        (small(slots=-1), "slots is -1, llama.cpp takes 1 to 256"),
        (small(context_length=1), "context is 1, a prompt and an answer take at least 2 tokens"),
    ],
)
def test_invalid_options_are_refused(options: LoadOptions, words: str) -> None:
    assert refusal(options) == words


@pytest.mark.skipif(lib.llama_supports_gpu_offload(), reason="the cache may go to a GPU with its own memory")
def test_kv_cache_larger_than_memory_is_refused_before_allocation() -> None:
    message = refusal(small(slots=256, context_length=2**24))
    assert message.startswith("the KV cache of 256 slots of 16777216 tokens takes 16384.0 GiB")
    assert message.endswith("lower slots or context")


ENGINE = """
from specpair.engines.errors import ModelLoadError
from backends.scripted import load

def refuse(options, progress):
    raise ModelLoadError("model: this engine reads no files", "model")

def fail(options, progress):
    raise LookupError("no such\\nweights")

def nothing(options, progress):
    return None

number = 5
"""
NAMES = {
    "mine": "load",
    "refusing": "refuse",
    "failing": "fail",
    "empty": "nothing",
    "scripted": "fail",
    "odd": "number",
}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions: one with engines."""
    values = {name: f"toy_engine:{function}" for name, function in NAMES.items()} | {"lost": "no_such_module:load"}
    distribute(tmp_path, "toy-engine", "1.2", {BACKENDS: values}, ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("toy_engine", None)


def plug_in_refusal(name: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        registry.load(name, LoadOptions(model=Path("7")))
    return str(caught.value)


def test_engine_of_another_distribution_is_loaded_by_its_name() -> None:
    progress: list[float] = []
    backend = registry.load("mine", LoadOptions(model=Path("7"), slots=2), progress.append)
    assert isinstance(backend, ScriptedBackend) and (backend.script.seed, backend.slots) == (7, 2)
    assert progress == [1.0] and not registry.compiles("mine", LoadOptions())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", "lost of toy-engine 1.2 cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("odd", "odd of toy-engine 1.2: toy_engine:number is no function"),
        ("failing", "failing of toy-engine 1.2 failed: LookupError: no such weights"),
        ("empty", "empty of toy-engine 1.2 must return a Backend, not None"),
        ("refusing", "model: this engine reads no files"),
    ],
)
def test_error_of_a_plug_in_names_its_distribution_unless_it_is_typed(name: str, message: str) -> None:
    assert plug_in_refusal(name) == message


def test_name_in_two_distributions_is_refused(site: Path) -> None:
    distribute(site, "other-engine", "3", {BACKENDS: {"mine": "toy_engine:load"}})
    assert plug_in_refusal("mine") == (
        "mine is in several distributions, other-engine 3, toy-engine 1.2: uninstall all but one"
    )


SETTINGS = {field.name for field in fields(LoadOptions)} | set(Settings.model_fields)


def _raised() -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """The place of each ModelLoadError that an engine makes, with its message and its setting."""
    for path in sorted((ROOT / "backends").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ModelLoadError":
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield where, node.args[0], node.args[1] if len(node.args) > 1 else None


RAISED = list(_raised())


def _beginning(message: ast.expr) -> str:
    """The text with which a message begins, or the expression whose value it begins with."""
    if isinstance(message, ast.JoinedStr):
        message = message.values[0]
    if isinstance(message, ast.Constant):
        return str(message.value)
    return ast.unparse(message.value if isinstance(message, ast.FormattedValue) else message)


@pytest.mark.parametrize(("where", "message", "setting"), RAISED, ids=[where for where, _, _ in RAISED])
def test_message_begins_with_the_setting_that_it_carries(
    where: str, message: ast.expr, setting: ast.expr | None
) -> None:
    first, *_ = _beginning(message).replace(":", " ").split()
    if setting is None:
        assert first not in SETTINGS
    else:
        assert first == _beginning(setting)
