"""MTP heads on torch: transformers' own drafts, and reasons for refusals. tests/conformance tests the contract."""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from models import DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry, HeadEntry, Logits
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import HEAD, HEAD_IF_ANY, LoadOptions
from tests.stand_ins.tiny_folders import WITH_HEAD, write_folder_with_head, write_tiny_folder

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
transformers = pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import modeling_layers  # noqa: E402
from transformers.cache_utils import MtpCache  # noqa: E402

from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.mtp_head import HeadLayer  # noqa: E402

pytestmark = pytest.mark.engine("torch")

TEXT = [int(token) for token in np.random.default_rng(5).integers(2, 260, 100)]
OPTIONS = LoadOptions(slots=2, context_length=128, batch_tokens=32, device="cpu", threads=1, head=HEAD)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a family with its head, written when it is first asked for."""
    made: dict[tuple[str, bool], Path] = {}

    def folder(family: str, right: bool = False) -> Path:
        if (family, right) not in made:
            made[family, right] = tmp_path_factory.mktemp(family)
            write_folder_with_head(family, made[family, right], right=right)
        return made[family, right]

    return folder


def read(backend: Backend, slot: int, text: Sequence[int]) -> None:
    for start in range(0, len(text), backend.max_batch_tokens):
        some = text[start : start + backend.max_batch_tokens]
        backend.extend([Entry(slot, start, some, len(some))])


def drafts_of_transformers(folder: Path, text: Sequence[int], tail: Sequence[int]) -> Logits:
    """The logits behind each token of `tail`, by the library's cache, masks and positions."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    head = modeling_layers.MtpModel.from_pretrained(model).eval()
    ids, rows, cache = torch.tensor([[*text, *tail]]), [], MtpCache(config=model.config.get_mtp_config())
    with torch.no_grad():
        states = model(ids[:, : len(text)], output_hidden_states=True).hidden_states[-1]
        first = 1
        for end in range(len(text) + 1, ids.shape[1] + 1):
            positions = torch.arange(first, end)[None]
            states = head.forward_layer(0, states, positions, cache, input_ids=ids[:, first:end])[:, -1:]
            rows.append(head.shared_head(states)[0])
            first = end
    return np.asarray(torch.cat(rows).numpy())


@pytest.mark.parametrize("family", WITH_HEAD)
def test_drafts_equal_those_of_transformers(folders: Callable[..., Path], family: str) -> None:
    text, tail = TEXT[:75], TEXT[80:88]
    expected = drafts_of_transformers(folders(family), text, tail)
    with closing(load("torch", replace(OPTIONS, model=folders(family)))) as backend:
        assert backend.head_depth == len(tail)
        read(backend, 1, text)
        got = [backend.extend_head([HeadEntry(1, 75, tail[:end])])[0] for end in range(1, 9)]
    assert np.abs(expected).max() > 1.0
    assert np.abs(np.stack(got) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["glm4_moe", "mellum"])
def test_every_draft_of_a_head_that_is_right_is_accepted(folders: Callable[..., Path], family: str, dtype: str) -> None:
    text, drafted = TEXT[:40], 4
    with closing(load("torch", replace(OPTIONS, model=folders(family, right=True), dtype=dtype))) as backend:
        read(backend, 0, text[:-1])
        for _ in range(6):
            start, tail = len(text) - 1, text[-1:]
            for _ in range(drafted):
                tail.append(int(backend.extend_head([HeadEntry(0, start, tail)])[0].argmax()))
            picked = backend.extend([Entry(0, start, tail, 0)])[0].argmax(axis=-1).tolist()
            assert picked[:-1] == tail[1:]
            text = [*text, *picked]


def test_a_compiled_model_drafts_the_same(folders: Callable[..., Path]) -> None:
    options = replace(OPTIONS, model=folders("mellum"), slots=1, compile_widths=(8, 32), compile_spans=(64,))
    plain = replace(options, compile_widths=None, compile_spans=None)
    rows = []
    for backend in (TorchBackend(options, compiler="eager"), TorchBackend(plain)):
        with closing(backend):
            read(backend, 0, TEXT)
            read(backend, 0, TEXT[:40])
            rows.append(backend.extend_head([HeadEntry(0, 40, TEXT[50:53])]))
    assert np.abs(rows[0] - rows[1]).max() < 1e-3


def test_a_context_can_be_drafted_behind_to_its_end(folders: Callable[..., Path]) -> None:
    text = (TEXT * 2)[:128]
    with closing(load("torch", replace(OPTIONS, model=folders("mellum")))) as backend:
        read(backend, 0, text)
        assert np.isfinite(backend.extend_head([HeadEntry(0, 128, TEXT[:8])])).all()
        read(backend, 1, text[:127])
        got = backend.extend_head([HeadEntry(1, 127, text[127:])])
    assert np.abs(got - drafts_of_transformers(folders("mellum"), text[:127], text[127:])).max() < 1e-3


def test_a_step_that_fails_leaves_the_texts_as_they_are(
    folders: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RuntimeError("the device is away")

    with closing(load("torch", replace(OPTIONS, model=folders("mellum")))) as backend:
        for slot in (0, 1):
            read(backend, slot, TEXT[:20])
        expected = backend.extend_head([HeadEntry(1, 20, TEXT[20:22])]).copy()
        backend.extend_head([HeadEntry(0, 20, TEXT[20:21])])
        with monkeypatch.context() as patch:
            patch.setattr(HeadLayer, "run", away)
            with pytest.raises(EngineFailure, match="PyTorch failed in the model's MTP head: the device is away"):
                backend.extend_head([HeadEntry(0, 20, TEXT[20:22])])
        assert backend.length(0) == 20
        assert np.abs(backend.extend_head([HeadEntry(0, 20, TEXT[20:22])]) - expected).max() < 1e-3


def of_another_kind(folder: Path, into: Path) -> None:
    write_tiny_folder("qwen3_moe", into)


def without_one_stated(folder: Path, into: Path) -> None:
    copied(folder, into, num_nextn_predict_layers=0)


def with_two_stated(folder: Path, into: Path) -> None:
    copied(folder, into, num_nextn_predict_layers=2)


def without_its_weights(folder: Path, into: Path) -> None:
    copied(folder, into)
    weights = load_file(folder / "model.safetensors")
    kept = {name: each for name, each in weights.items() if not name.startswith("model.layers.46.")}
    save_file(kept, into / "model.safetensors", metadata={"format": "pt"})


def of_another_shape(folder: Path, into: Path) -> None:
    copied(folder, into)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.46.eh_proj.weight"] = torch.zeros(64, 64)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})


def copied(folder: Path, into: Path, **changes: Any) -> None:
    for file in folder.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    config = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("make", "words", "stated"),
    [
        (of_another_kind, "loads no MTP head of the architecture qwen3_moe", False),
        (without_one_stated, "its config.json states no MTP head", False),
        (with_two_stated, "it has 2 MTP heads, and the torch backend runs one", True),
        (without_its_weights, "transformers could not load its MTP head: .* missing", True),
        (of_another_shape, "transformers could not load its MTP head: .*", True),
    ],
)
def test_a_model_without_a_head_that_runs_goes_without_or_is_refused(
    folders: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path, Path], None],
    words: str,
    stated: bool,
) -> None:
    """A warning says so where the folder states a head."""
    make(folders("glm4_moe"), tmp_path)
    with pytest.raises(ModelLoadError, match=f"cannot draft by itself: .*{words}") as caught:
        load("torch", replace(OPTIONS, model=tmp_path))
    assert caught.value.setting == "draft"
    with (
        caplog.at_level(logging.WARNING, "specpair.torch"),
        closing(load("torch", replace(OPTIONS, model=tmp_path, head=HEAD_IF_ANY))) as backend,
    ):
        assert backend.head_depth == 0
    assert ("does not draft by itself" in caplog.text) is stated


def test_a_file_and_a_split_model_have_no_head(folders: Callable[..., Path]) -> None:
    with pytest.raises(ModelLoadError, match="reads MTP heads from folders in Hugging Face layout only"):
        load("torch", replace(OPTIONS, model=DEFAULT_TARGET))
    with pytest.raises(ModelLoadError, match="leave tensor_parallel out"):
        load("torch", replace(OPTIONS, model=folders("mellum"), tensor_parallel=2))


def test_an_older_library_is_named_with_the_version_that_suffices(
    folders: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(modeling_layers.MtpModel, "forward_layer")
    with pytest.raises(ModelLoadError, match=r"loads no MTP heads: install 5\.20 or newer"):
        load("torch", replace(OPTIONS, model=folders("mellum")))


def test_a_head_that_is_not_asked_for_is_not_loaded(folders: Callable[..., Path]) -> None:
    with closing(load("torch", replace(OPTIONS, model=folders("mellum"), head=HEAD_IF_ANY))) as backend:
        with_head = backend.kv_bytes
        assert backend.head_depth
    with closing(load("torch", replace(OPTIONS, model=folders("mellum"), head="off"))) as backend:
        assert not backend.head_depth
        assert backend.kv_bytes < with_head
