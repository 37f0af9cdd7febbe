"""Free memory of a device that is neither a CPU nor one of CUDA's, asked through its module in PyTorch."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import registry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from backends.torch import backend as torch_backend  # noqa: E402 - they need the extra
from backends.torch import read_model  # noqa: E402
from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.compiling import NEURON  # noqa: E402
from backends.torch.read_model import check_fits, free_bytes, heads_of  # noqa: E402

pytestmark = pytest.mark.engine("torch")

DEVICE = torch.device("xpu", 1)  # stands for any device; this machine need not have one


class Module:
    """A module as `torch.neuron`, for a device of `total` bytes, of which 300 are allocated once work has settled."""

    def __init__(self, total: int) -> None:
        self._total, self._settled = total, False

    def synchronize(self) -> None:
        self._settled = True

    def get_device_properties(self, index: int) -> Any:
        assert index == 1
        return SimpleNamespace(total_memory=self._total)

    def memory_allocated(self, index: int) -> int:
        return 300 if self._settled and index == 1 else 0


@pytest.mark.parametrize(("total", "expected"), [(1000, 700), (200, 0), (0, None)])
def test_what_is_not_allocated_is_free(monkeypatch: pytest.MonkeyPatch, total: int, expected: int | None) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module(total))
    assert free_bytes(DEVICE) == expected


def test_memory_of_a_device_that_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(device: Any) -> Any:
        raise RuntimeError("no module for it")

    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(synchronize=lambda: None))
    assert free_bytes(DEVICE) is None
    monkeypatch.setattr(torch, "get_device_module", no_module)
    assert free_bytes(DEVICE) is None


def test_core_of_trn2_that_does_not_tell_has_what_its_instance_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module(0))
    core = SimpleNamespace(type=NEURON, index=1)  # such a device is registered by TorchNeuron only
    for known, free in ((24 * 2**30, 24 * 2**30 - 300), (None, None)):
        monkeypatch.setattr(read_model, "trn2_core_bytes", lambda known=known: known)
        assert free_bytes(core) == free


def test_slots_and_room_go_by_the_memory_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = TinyModel(tmp_path / "tiny").folder
    options = LoadOptions(folder, slots=None, context_length=128, device="cpu", threads=1)
    slot = 128 * 2 * 2 * 32 * 4  # tokens, layers, keys and values, numbers a head, bytes
    for free, slots in ((4 * 7 * slot, 7), (None, 4), (10**12, 16)):
        monkeypatch.setattr(torch_backend, "free_bytes", lambda device, free=free: free)
        backend = TorchBackend(options)
        assert backend.slots == slots
        backend.close()
    monkeypatch.setattr(torch_backend, "free_bytes", lambda device: slot)
    with pytest.raises(ModelLoadError, match="are available: lower slots or context"):
        TorchBackend(options)


def test_model_that_does_not_fit_on_neuron_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number of cores that would do."""
    made = TinyModel(tmp_path / "tiny")
    options = LoadOptions(made.folder, slots=2, context_length=128, device="cpu", threads=1, dtype="bfloat16")
    weights = 2 * sum(each.size for each in made.weights.values())
    cache = 2 * 2 * 2 * 32 * 128 * 2  # bytes a number, keys and values, layers, numbers a head, tokens, slots

    def read(*_: Any) -> Any:
        raise AssertionError("the weights are read")

    monkeypatch.setattr(torch_backend, "free_bytes", lambda device: (weights + cache) // 3 + 1)
    with pytest.raises(ModelLoadError, match=r"tensor_parallel 1: .* are free: lower slots or context$") as caught:
        TorchBackend(options, compiler=NEURON, read=read)
    assert caught.value.setting == "tensor_parallel"
    monkeypatch.setattr(torch_backend, "free_bytes", lambda device: weights + cache)
    with pytest.raises(AssertionError, match="the weights are read"):
        TorchBackend(options, compiler=NEURON, read=read)


@pytest.mark.parametrize("content", [b"", b"no safetensors"])
def test_weights_that_cannot_be_counted_are_left_to_the_load(tmp_path: Path, content: bytes) -> None:
    made = TinyModel(tmp_path / "tiny")
    (made.folder / "model.safetensors").write_bytes(content)
    check_fits(LoadOptions(made.folder, context_length=128), torch.bfloat16, 1, 2**20)
    check_fits(LoadOptions(made.folder / "model.safetensors"), torch.bfloat16, 1, 1)
    check_fits(LoadOptions(), torch.bfloat16, 1, 1)


def test_weights_in_several_files_are_counted_by_their_index(tmp_path: Path) -> None:
    made = TinyModel(tmp_path / "tiny")
    weights = made.folder / "model.safetensors"
    (made.folder / "other.safetensors").write_bytes(weights.read_bytes())  # not of the model
    weights.rename(made.folder / "part.safetensors")
    index = {"weight_map": dict.fromkeys(made.weights, "part.safetensors")}
    (made.folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    count = sum(each.size for each in made.weights.values())
    check_fits(LoadOptions(made.folder, context_length=2), torch.float32, 1, 4 * count + 2 * 2 * 2 * 32 * 4)
    with pytest.raises(ModelLoadError, match=r"are free: lower slots or context$"):
        check_fits(LoadOptions(made.folder, context_length=2), torch.float32, 1, 4 * count)


def test_number_of_devices_that_suffices_shares_out_the_heads(tmp_path: Path) -> None:
    made = TinyModel(tmp_path / "tiny", num_attention_heads=4, num_key_value_heads=4, head_dim=16)
    needed = 4 * sum(each.size for each in made.weights.values()) + 2 * 2 * 64 * 2 * 4
    options = LoadOptions(made.folder, context_length=2)
    check_fits(options, torch.float32, 1, needed)
    with pytest.raises(ModelLoadError, match=r"are free: tensor_parallel 4 suffices, or lower slots or context$"):
        check_fits(options, torch.float32, 1, needed // 3 + 1)
    check_fits(options, torch.float32, 4, needed // 3 + 1)
    with pytest.raises(ModelLoadError, match=r"tensor_parallel 4: .* are free: lower slots or context$"):
        check_fits(options, torch.float32, 4, needed // 5)


def test_output_embedding_that_is_not_loaded_is_not_counted(tmp_path: Path) -> None:
    made = TinyModel(tmp_path / "tiny", tie_word_embeddings=False)
    head = made.weights["lm_head.weight"].size
    count = sum(each.size for each in made.weights.values())
    cache, options = 2 * 2 * 32 * 2 * 4, LoadOptions(made.folder, context_length=2)
    with pytest.raises(ModelLoadError, match="are free"):
        check_fits(options, torch.float32, 1, 4 * (count - head) + cache)
    made.write_config(tie_word_embeddings=True)
    check_fits(options, torch.float32, 1, 4 * (count - head) + cache)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, (2, 8)),
        ({"num_attention_heads": 8}, (8, 8)),
        ({"num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False}, (1, 71)),
        ({"num_attention_heads": 8, "multi_query": True, "new_decoder_architecture": True}, (8, 8)),
        ({"hidden_size": 64}, (0, 0)),
    ],
)
def test_heads_are_those_of_the_family(config: dict[str, Any], heads: tuple[int, int]) -> None:
    assert heads_of(SimpleNamespace(**config)) == heads


def test_model_without_heads_is_left_to_the_load(tmp_path: Path) -> None:
    folder = TinyModel(tmp_path / "mamba").folder
    (folder / "config.json").write_text(json.dumps({"model_type": "mamba", "hidden_size": 8}), encoding="utf-8")
    check_fits(LoadOptions(folder, context_length=2), torch.float32, 1, 1)


@pytest.mark.parametrize(("dtype", "width"), [(None, 4), ("bfloat16", 2)])
def test_a_cpu_tells_the_room_for_a_model_before_it_is_there(dtype: str | None, width: int) -> None:
    room = registry.room("torch", LoadOptions(device="cpu", dtype=dtype, tensor_parallel=2))
    assert room is not None and room.free > 0 and (room.weight, room.cached) == (width, width)
    assert registry.room("torch", LoadOptions(device=NEURON)) is None
