"""Free memory of a device that is neither a CPU nor one of CUDA's, asked through its module in PyTorch."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.base import LoadOptions, ModelLoadError
from tests.models.conftest import TinyModel

torch = pytest.importorskip("torch", reason="needs the extra in requirements-torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements-torch.txt")

from backends.torch import backend as torch_backend  # noqa: E402 - they need the extra
from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.memory import free_bytes  # noqa: E402

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
    with pytest.raises(ModelLoadError, match="are available: lower rows or context"):
        TorchBackend(options)
