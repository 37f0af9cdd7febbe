"""Which head a GGUF file has, by its header alone: kind, layers, bytes, KV cache, and whether the target is with it."""

from pathlib import Path

import pytest

from backends.llama_cpp.backend import LlamaBackend
from models.errors import BadHead
from models.hub.gguf_check import check_model, read_parts
from models.hub.gguf_layers import DraftHead, draft_head, kv_numbers
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.tiny_architectures import ARCHITECTURES, split_gguf, write_tiny_architecture
from tests.stand_ins.tiny_heads import KV_OF_LAYER, write_lone_head, write_lone_mtp, write_target_with_mtp


@pytest.mark.parametrize("layers", [1, 3])
def test_mtp_layers_in_a_targets_file(layers: int, tmp_path: Path) -> None:
    path = tmp_path / "target.gguf"
    size = write_target_with_mtp(path, layers)
    heads = read_parts(path)
    check_model("target", heads)
    assert draft_head(heads) == DraftHead("mtp", layers, size, layers * KV_OF_LAYER, alone=False)
    assert kv_numbers(heads[0]) == 2 * KV_OF_LAYER, "two of the four layers of the model attend"


def test_mtp_layers_are_found_in_all_parts_of_a_split_file(tmp_path: Path) -> None:
    path = tmp_path / "target.gguf"
    size = write_target_with_mtp(path)
    found = draft_head(read_parts(split_gguf(path, 20)[0]))
    assert found is not None and found.size == size


def test_a_file_that_states_mtp_layers_without_their_tensors_has_no_head(tmp_path: Path) -> None:
    path = tmp_path / "target.gguf"
    write_target_with_mtp(path, 0, stated=1)
    heads = read_parts(path)
    check_model("target", heads)
    assert draft_head(heads) is None and kv_numbers(heads[0]) == 2 * KV_OF_LAYER
    write_target_with_mtp(path, 1, stated=2)
    assert draft_head(read_parts(path)) is None, "one of the two layers is missing"


def test_mtp_layers_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mtp-target.gguf"
    write_lone_mtp(path, 2)
    heads = read_parts(path)
    assert draft_head(heads) == DraftHead("mtp", 2, sum(heads[0].tensor_bytes().values()), 2 * KV_OF_LAYER, alone=True)


@pytest.mark.parametrize(
    ("architecture", "layers", "further", "kind", "cached"),
    [
        ("eagle3", 1, (), "eagle3", KV_OF_LAYER),
        ("dflash", 3, (), "dflash", 3 * KV_OF_LAYER),
        ("dflash", 2, ("markov_w1.weight",), "dspark", 2 * KV_OF_LAYER),
        ("gemma4-assistant", 2, ("nextn.post_projection.weight",), "mtp", 0),  # reads the target's cache
    ],
)
def test_heads_of_an_architecture_of_their_own(
    architecture: str, layers: int, further: tuple[str, ...], kind: str, cached: int, tmp_path: Path
) -> None:
    path = tmp_path / "head.gguf"
    write_lone_head(architecture, path, layers, *further)
    found = draft_head(read_parts(path))
    assert found == DraftHead(kind, layers, 64 * 64 * 4 * (1 + layers + len(further)), cached, alone=True)


def test_a_head_of_its_own_is_no_model(tmp_path: Path) -> None:
    mtp, eagle = tmp_path / "mtp.gguf", tmp_path / "eagle3.gguf"
    write_lone_mtp(mtp)
    write_lone_head("eagle3", eagle)
    for path, kind in ((mtp, "mtp"), (eagle, "eagle3")):
        with pytest.raises(BadHead, match=f"toy is no model, but the {kind} head of one.*: name the file of the model"):
            check_model("toy", read_parts(path))
        check_model("toy", read_parts(path), lone_head=True)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models_without_a_head(name: str, tmp_path: Path) -> None:
    write_tiny_architecture(name, tmp_path / "model.gguf")
    assert draft_head(read_parts(tmp_path / "model.gguf")) is None


def test_llama_cpp_caches_for_the_model_what_its_header_says(tmp_path: Path) -> None:
    path, caches = tmp_path / "target.gguf", []
    write_target_with_mtp(path)
    for context in (32, 96):
        backend = LlamaBackend(LoadOptions(model=path, context_length=context, threads=1))
        caches.append(backend.kv_bytes)
        backend.close()
    numbers = kv_numbers(read_parts(path)[0])
    assert 2 * numbers <= (caches[1] - caches[0]) / 64 <= 2 * numbers + 24  # states have each token's position, too
