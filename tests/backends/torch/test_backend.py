"""The torch backend: logits, model families, compiled shapes, refusals. tests/conformance tests the contract."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from models import DEFAULT_DRAFT
from models.export import export_hf
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.extras import installing
from tests.models.conftest import TinyModel, tiny_tokenizer

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
transformers = pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from backends.torch import load as torch_load  # noqa: E402
from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.cache import SlotCache  # noqa: E402
from backends.torch.launch import Masks  # noqa: E402

pytestmark = pytest.mark.engine("torch")

TEXT = [int(token) for token in np.random.default_rng(5).integers(2, 260, 120)]
SMALL = {
    "vocab_size": 264,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 24},
    "gemma3_text": {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gemma2": {"sliding_window": 24},
    "gemma2, one kind": {"sliding_window": 24, "layer_types": ["sliding_attention"] * 4},
    "phi3": {},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each family, written by `save_pretrained`, with random weights."""
    made = {}
    for name, changes in FAMILIES.items():
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model(name.partition(",")[0], **{**SMALL, **changes})
        model = transformers.AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=2.0 * weight.shape[-1] ** -0.5)
        made[name] = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(made[name])
        (made[name] / "tokenizer.json").write_text(json.dumps(tiny_tokenizer()))
    return made


OPTIONS = LoadOptions(slots=3, context_length=128, batch_tokens=64, device="cpu", threads=1)


@contextmanager
def opened(path: Path, compiler: str | None = None, **changes: Any) -> Iterator[TorchBackend]:
    with closing(TorchBackend(replace(OPTIONS, model=path, **changes), compiler=compiler)) as backend:
        yield backend


def fed(backend: Backend, tokens: Sequence[int], widths: Sequence[int]) -> np.ndarray[Any, Any]:
    """Logits after each of `tokens`, fed in pieces of these widths in turn."""
    parts, at, turn = [], 0, 0
    while at < len(tokens):
        piece = tokens[at : at + widths[turn % len(widths)]]
        parts.append(backend.extend([Entry(1, at, piece, 0)])[0].copy())
        at, turn = at + len(piece), turn + 1
    return np.concatenate(parts)


def uncached(path: Path, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
    """Logits of the whole text in float64 by transformers alone, without our cache, mask and positions."""
    source: dict[str, Any] = {"pretrained_model_name_or_path": path}
    if path.is_file():
        source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).double().eval()
    with torch.no_grad():
        logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    return np.asarray(logits.double().numpy())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_its_uncached_logits(folders: dict[str, Path], family: str) -> None:
    expected = uncached(folders[family], TEXT)
    for compiler in (None, "eager") if family in ("llama", "gemma3_text") else (None,):
        with opened(folders[family], compiler) as backend:
            got = fed(backend, TEXT, [1, 7, 2, 40, 1, 16])
    assert np.abs(expected).max() > 1.0
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()


def test_folder_and_gguf_file_of_one_model_agree(tmp_path: Path) -> None:
    """Also on llama.cpp: another engine, another order of sums, weights of fewer bits."""
    model = TinyModel(tmp_path / "tiny")
    export_hf(model.folder, tmp_path / "tiny.gguf", "f16")
    logits = []
    with opened(model.folder) as folder, opened(tmp_path / "tiny.gguf") as file:
        assert folder.vocabulary.fingerprint == file.vocabulary.fingerprint
        logits += [fed(folder, TEXT, [64]), fed(file, TEXT, [64])]
    with closing(load("llama_cpp", replace(OPTIONS, model=tmp_path / "tiny.gguf", device=None))) as backend:
        logits.append(fed(backend, TEXT, [64]))
    assert np.abs(logits[0] - logits[1]).max() < 1e-4
    assert np.abs(logits[0] - logits[2]).max() < 0.05 * np.abs(logits[0]).max(), "its KV cache is of 16 bits"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("layers", [None, ["full_attention"], ["full_attention", "sliding_attention"]])
@pytest.mark.parametrize("window", [None, 3])
def test_masks_of_chains_are_the_same_beside_trees(
    attention: str, layers: list[str] | None, window: int | None
) -> None:
    config = SimpleNamespace(_attn_implementation=attention, layer_types=layers, sliding_window=window)
    masks, starts, span = Masks(config, "tiny", torch.float32), torch.tensor([0, 7, 2]), 16
    seen = torch.ones(4, 4, dtype=torch.bool).tril().repeat(3, 1, 1)
    positions = starts[:, None] + torch.arange(4)
    found, expected = masks.of_trees(starts, seen, positions, span), masks.of(positions, span)
    if not isinstance(expected, dict):
        found, expected = {"": found}, {"": expected}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[kind], expected[kind]) for kind in expected)


def test_tokens_that_cannot_be_moved_empty_their_slot(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folders["llama"]) as backend:
        whole = fed(backend, TEXT[:6], [6])
        backend.extend([Entry(0, 0, TEXT[:5], 0, [1, 2, 3]), Entry(1, 0, TEXT[:4], 0), Entry(2, 0, TEXT[:4], 0)])
        backend.keep(0, [4])

        def away(*_: object) -> None:
            raise RuntimeError("the device is away")

        with monkeypatch.context() as patch:
            patch.setattr(SlotCache, "move", away)
            with pytest.raises(EngineFailure, match="PyTorch failed to move a slot: the device is away"):
                backend.extend([Entry(1, 4, TEXT[4:5], 0)])
        assert [backend.length(slot) for slot in range(3)] == [0, 0, 4]
        assert np.abs(backend.extend([Entry(2, 4, TEXT[4:6], 0)])[0] - whole[4:]).max() < 1e-3


@pytest.mark.parametrize(
    ("device", "size", "before", "cores"),
    [
        ("neuron", None, {}, [0]),
        ("neuron:0", 1, {}, [0]),
        ("neuron", 4, {}, [0, 1, 2, 3]),
        ("neuron", 2, {"NEURON_RT_VISIBLE_CORES": "8-15"}, [8, 9]),
        ("neuron", 2, {"NEURON_RT_VISIBLE_CORES": "3,1"}, [3, 1]),
        ("neuron", 2, {"NEURON_RT_NUM_CORES": "4"}, [0, 1]),
        ("cpu", None, {}, None),
        ("cuda:1", None, {}, None),
    ],
)
def test_process_claims_a_neuron_core_for_each_part(
    device: str, size: int | None, before: dict[str, str], cores: list[int] | None
) -> None:
    environment = dict(before)
    assert torch_load.claim_cores(LoadOptions(device=device, tensor_parallel=size), environment) == cores
    assert environment == before if cores is None else len(environment) > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "the torch backend needs a model: a folder in Hugging Face layout, or a GGUF file"),
        ({"model": Path("/nowhere")}, "no such model: /nowhere: the torch backend reads a folder .*, or a GGUF file"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
        ({"device": "cuda"}, "device 'cuda' cannot be used here"),
        ({"dtype": "int4"}, "dtype 'int4' is unknown: choose one of float32, bfloat16, float16"),
        ({"deterministic": True}, "deterministic: the torch backend has no such choice"),
        ({"kv_type": "q8_0"}, "kv_type q8_0: the torch backend caches in the model's dtype: set that"),
        ({"gpu_layers": 0}, "gpu_layers: the torch backend has no such choice"),
        ({"mmap": False}, "mmap: the torch backend has no such choice"),
        ({"slots": 10**6}, "GiB, .* are available: lower slots or context"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(
    folders: dict[str, Path], changes: dict[str, Any], words: str
) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("CUDA is available here")
    with pytest.raises(ModelLoadError, match=words):
        load("torch", replace(OPTIONS, **{"model": folders["llama"], **changes}))


def test_gguf_file_without_llama_cpp_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.torch.read_model.find_spec", lambda name: None if name == "llama_cpp" else name)
    with pytest.raises(ModelLoadError) as caught:
        load("torch", LoadOptions(DEFAULT_DRAFT))
    assert str(caught.value) == (
        f"a GGUF file also needs llama_cpp, which is not installed: {installing('llama')}; a folder of "
        "safetensors does without it"
    )


def test_path_without_a_model_is_refused_with_the_reason(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match="is no model folder: it has no config"):
        load("torch", replace(OPTIONS, model=tmp_path))
    config = (folders["llama"] / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelLoadError, match=r"has no weights in \*\.safetensors"):
        load("torch", replace(OPTIONS, model=tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelLoadError, match="transformers could not load"):
        load("torch", replace(OPTIONS, model=tmp_path))
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF and no more")
    with pytest.raises(ModelLoadError, match="is no GGUF file that can be read"):
        load("torch", replace(OPTIONS, model=junk))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"num_hidden_layers": 5},
            r"has no weights model\.layers\.4\..* and \d more, which its configuration asks for",
        ),
        ({"intermediate_size": 80}, r"has weights of another shape model\.layers\..*mlp\..* \(96, 64\) for \(80, 64\)"),
        ({"vocab_size": 300}, r"has weights of another shape .*lm_head\.weight \(264, 64\) for \(300, 64\)"),
        ({"num_attention_heads": 5, "head_dim": None}, "transformers could not load .*5"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_refused(
    tmp_path: Path, folders: dict[str, Path], changes: dict[str, Any], words: str
) -> None:
    """The library would use random numbers instead."""
    for file in folders["llama"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelLoadError, match=words):
        load("torch", replace(OPTIONS, model=tmp_path))
