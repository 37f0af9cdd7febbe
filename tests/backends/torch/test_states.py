"""Recurrent and hybrid models on torch: logits, memory, refusals. tests/backends/test_recurrent.py has the rollback."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.tiny_folders import FAMILIES, write_tiny_folder

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
transformers = pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

pytestmark = pytest.mark.engine("torch")

TEXT = [int(token) for token in np.random.default_rng(5).integers(2, 260, 120)]
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
JAMBA = {**HEADS, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}


def opened(folder: Path, **changes: Any) -> Backend:
    options = {"slots": 3, "context_length": 256, "batch_tokens": 64, "device": "cpu", "threads": 1, **changes}
    return load("torch", LoadOptions(folder, **options))


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "lfm2"
    write_tiny_folder("lfm2", folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_its_logits_without_a_cache(tmp_path: Path, family: str) -> None:
    write_tiny_folder(family, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(torch.tensor([TEXT]), use_cache=False).logits[0].numpy()
    with closing(opened(tmp_path)) as backend:
        parts, at = [], 0
        for width in (1, 7, 2, 40, 1, 16, 40, 13):
            parts.append(backend.extend([Entry(1, at, TEXT[at : at + width], 0)])[0].copy())
            at += width
    assert np.abs(expected).max() > 5.0
    assert np.abs(np.concatenate(parts) - expected).max() < 5e-3


@pytest.mark.parametrize("slots", [1, 3])
def test_rejections_cost_nothing_where_all_states_are_of_convolutions(lfm2: Path, slots: int) -> None:
    with closing(opened(lfm2, slots=slots)) as backend, closing(opened(lfm2)) as other:
        backend.extend([Entry(0, 0, TEXT[:20], 20)])
        assert [backend.reread(0, length) for length in (20, 13, 12, 11)] == [0, 0, 0, 11]
        if slots > 1:
            backend.copy(0, 1, 13)
            assert backend.reread(1, 13) == 0
        expected = other.extend([Entry(0, 0, [*TEXT[:13], 9], 13)])[0]
        for slot in range(min(slots, 2)):
            assert np.abs(backend.extend([Entry(slot, 13, [9], 0)])[0] - expected).max() < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_begins_anew_in_each_pass_is_refused(tmp_path: Path, dtype: str) -> None:
    write_tiny_folder("jamba", tmp_path, JAMBA)
    with pytest.raises(ModelLoadError, match=r"\(jamba\) does not continue from its states .*: choose another model$"):
        opened(tmp_path, dtype=dtype)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compile": True}, r"^compile: lfm2 \(lfm2\) keeps states, which would read the padding .*: leave it out$"),
        ({"deterministic": True}, "^deterministic: the torch backend has no such choice"),
    ],
)
def test_settings_that_states_rule_out_are_refused(lfm2: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        opened(lfm2, **changes)


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("xlstm", {"num_heads": 2}, "does not run with the cache of the torch backend"),
        ("rwkv", {}, "has no cache of earlier tokens"),
        ("llama4_text", HEADS, "has layers of chunked_attention, whose masks the torch backend does not know"),
    ],
)
def test_other_families_are_refused_by_name(tmp_path: Path, family: str, changes: dict[str, Any], words: str) -> None:
    write_tiny_folder(family, tmp_path, {"num_hidden_layers": 2, **changes})
    with pytest.raises(ModelLoadError, match=rf"\({family}\) .*{words}.*: choose "):
        opened(tmp_path)
