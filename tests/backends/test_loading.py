"""Loading reports why a model cannot be loaded and what to do, without a crash."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends import registry
from backends.llama_cpp.library import lib
from backends.scripted import ScriptedBackend
from models import DEFAULT_TARGET
from specpair.engines.backend import Entry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions


def refusal(options: LoadOptions, name: str = "llama_cpp") -> str:
    with pytest.raises(ModelLoadError) as caught:
        registry.load(name, options)
    return str(caught.value)


def small(**options: object) -> LoadOptions:
    """Options for the shipped target that make an unexpected successful load cheap."""
    return LoadOptions(**{"model": DEFAULT_TARGET, "context_length": 64, "threads": 1, **options})  # type: ignore[arg-type]


def test_unknown_engine_is_named_with_the_known_ones() -> None:
    assert (
        refusal(LoadOptions(), "lama") == "unknown backend 'lama': choose one of llama_cpp, torch, mlx, neuron_legacy"
    )


def test_engine_is_imported_only_when_requested() -> None:
    """A user of one engine neither imports nor needs the libraries of another."""
    program = "import sys; import backends.registry; print([name for name in sys.modules if 'llama' in name])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


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


def test_missing_model_option_is_refused() -> None:
    assert refusal(LoadOptions()) == "the llama_cpp backend needs a model: the path of a GGUF file"


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


def test_cache_type_without_its_flash_attention_is_refused() -> None:
    message = refusal(small(kv_type="q8_0", flash_attention=False))
    assert "lower slots or context" in message
    assert "flash_attn" in message, "the library's own reason is passed on"


def test_progress_ends_at_1_and_closing_twice_is_harmless() -> None:
    progress: list[float] = []
    backend = registry.load("llama_cpp", small(), progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert backend.model_name == DEFAULT_TARGET.stem
    assert (backend.slots, backend.context_length) == (1, 64)
    assert backend.kv_bytes > 0
    backend.close()
    backend.close()


def test_smaller_cache_type_takes_less_memory() -> None:
    sizes = {}
    for kv_type in ("f32", "f16", "q8_0"):
        backend = registry.load("llama_cpp", small(kv_type=kv_type, mmap=False))
        ids = backend.vocabulary.encode("def main():")
        assert backend.extend([Entry(0, 0, ids, len(ids) - 1)])[0].shape == (1, backend.vocabulary.size)
        sizes[kv_type] = backend.kv_bytes
        backend.close()
    assert sizes["f32"] == 2 * sizes["f16"] > 2 * sizes["q8_0"]


def test_slots_default_to_memory_and_context_to_the_trained_length() -> None:
    backend = registry.load("llama_cpp", LoadOptions(model=DEFAULT_TARGET, slots=None, threads=1))
    assert 1 <= backend.slots <= 16
    assert backend.context_length == 2048
    backend.close()
