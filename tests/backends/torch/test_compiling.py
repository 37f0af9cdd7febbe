"""What compilers are given: shapes by the user's settings, and a folder for compiled programs."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import registry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel
from tests.paths import ROOT

pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: E402 - it needs the extra

from backends.torch import backend as torch_backend  # noqa: E402 - they need the extra
from backends.torch import read_model  # noqa: E402
from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.compiling import (  # noqa: E402 - it needs the extra
    INDUCTOR_FOLDER,
    NEURON,  # noqa: E402
    NEURON_FOLDERS,
    buckets,
    check_compilation,
    keep_programs,
    programs_folder,
    spans,
)
from backends.torch.read_model import check_fits, context_of, free_bytes, heads_of  # noqa: E402

pytestmark = pytest.mark.engine("torch")


@pytest.mark.parametrize(
    ("compiler", "asked", "shared", "wide"),
    [
        (NEURON, None, (1, 8, 32), [128, 512]),
        (NEURON, (4,), (4,), [128, 512]),
        (NEURON, (1, 16, 512), (1, 16), [512]),
        ("inductor", None, (1, 2, 4, 8, 16, 32), [64, 128, 256, 512]),
        ("inductor", (1, 8, 100, 700), (1, 8), [100, 700]),
    ],
)
def test_widths_are_those_of_the_user_else_of_the_compiler(
    compiler: str, asked: Any, shared: tuple[int, ...], wide: list[int]
) -> None:
    found = buckets(LoadOptions(compile_widths=asked), compiler, 4, 512)
    assert tuple(found.widths) == shared and list(found.wide_widths) == wide


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [1024, 4096, 4608]),
        ((512,), [512, 4608]),
        ((512, 4096), [512, 4608]),
        ((4096,), [4608]),
        ((512, 8192), [512, 4608]),
    ],
)
def test_spans_end_with_the_whole_cache(asked: Any, expected: list[int]) -> None:
    assert spans(LoadOptions(compile_spans=asked), "inductor", 4096, 4608) == expected


@pytest.mark.parametrize("asked", [(64, 512), (0, 4), (8, 4), (4, 4)])
def test_widths_without_a_shared_one_are_refused(asked: tuple[int, ...]) -> None:
    with pytest.raises(ModelLoadError, match=r"^compile_widths \d+,\d+: .* at least one of them from 1 to 32") as found:
        buckets(LoadOptions(compile_widths=asked), NEURON, 4, 512)
    assert found.value.setting == "compile_widths"


@pytest.mark.parametrize(
    "setting", [{"compile_widths": (1,)}, {"compile_spans": (64,)}, {"compile_cache": Path("programs")}]
)
def test_settings_of_compilation_are_refused_where_nothing_is_compiled(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ModelLoadError, match=f"^{name}: nothing is compiled: set compile, or leave {name} out$"):
        check_compilation(LoadOptions(**setting), None)
    check_compilation(LoadOptions(**setting), "inductor")


def test_programs_are_kept_where_the_user_says(tmp_path: Path) -> None:
    options = LoadOptions(compile_cache=tmp_path)
    environment: dict[str, str] = {}
    keep_programs(options, NEURON, environment)
    assert environment == dict.fromkeys(NEURON_FOLDERS, str(tmp_path / "neuron"))
    for before in ({}, {INDUCTOR_FOLDER: default_cache_dir()}, {INDUCTOR_FOLDER: ""}):
        environment = dict(before)
        keep_programs(options, "inductor", environment)
        assert environment == {INDUCTOR_FOLDER: str(tmp_path / "inductor")}
        assert programs_folder(options, "inductor", before) == str(tmp_path)
    environment = dict.fromkeys((*NEURON_FOLDERS, INDUCTOR_FOLDER), "/mine")
    for compiler in (NEURON, "inductor", None):
        keep_programs(options, compiler, environment)
        assert programs_folder(options, compiler, environment) == (None if compiler is None else "/mine")
    assert set(environment.values()) == {"/mine"}, "a user's own variables stay"


@pytest.mark.parametrize("given", [None, "mine"])
def test_inductor_reads_the_folder_after_all_imports(tmp_path: Path, given: str | None) -> None:
    """It writes its own default to the variable as it is imported. A variable of the user's counts more than ours."""
    code = (
        "import backends.torch.load, torch._inductor.compile_fx, pathlib, sys\n"
        "from specpair.engines.load_options import LoadOptions\n"
        "from torch._inductor.runtime.cache_dir_utils import cache_dir\n"
        "backends.torch.load.keep_programs(LoadOptions(compile_cache=pathlib.Path(sys.argv[1])), 'inductor')\n"
        "print(cache_dir())"
    )
    environment = {name: value for name, value in os.environ.items() if name != INDUCTOR_FOLDER}
    environment |= {} if given is None else {INDUCTOR_FOLDER: str(tmp_path / given)}
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "kept")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(tmp_path / (given or "kept/inductor")), done.stderr


torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")


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


@pytest.mark.parametrize(("dtype", "width"), [(None, 4), ("bfloat16", 2)])
def test_a_cpu_tells_the_room_for_a_model_before_it_is_there(dtype: str | None, width: int) -> None:
    room = registry.room("torch", LoadOptions(device="cpu", dtype=dtype, tensor_parallel=2))
    assert room is not None and room.free > 0 and (room.weight, room.cached) == (width, width)
    assert registry.room("torch", LoadOptions(device=NEURON)) is None


@pytest.mark.parametrize(
    ("config", "asked", "found"),
    [
        ({"max_position_embeddings": 8192}, None, 4096),
        ({"max_position_embeddings": 1024}, None, 1024),
        ({"max_position_embeddings": 1024}, 1025, "trained for 1024 positions: at most 1024"),
        ({}, 9000, 9000),  # positions are relative only
        (
            {
                "max_position_embeddings": 8192,
                "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 512},
            },
            600,
            "beyond 512 tokens this model changes the positions of the whole text",
        ),
        ({"max_position_embeddings": 512, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 2048, 2048),
    ],
)
def test_the_context_is_one_that_the_positions_allow(config: dict[str, Any], asked: int | None, found: Any) -> None:
    if isinstance(found, int):
        assert context_of(SimpleNamespace(**config), asked) == found
        return
    with pytest.raises(ModelLoadError, match=found) as caught:
        context_of(SimpleNamespace(**config), asked)
    assert caught.value.setting == "context"
