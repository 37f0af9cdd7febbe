"""What heads of GGUF files say of each kind of model, compared with what llama.cpp allocates for it."""

from pathlib import Path

import pytest

from backends.llama_cpp.backend import LlamaBackend
from gateway.openai_api.answer import reply_style
from models.commands.description import describe_gguf
from models.commands.showing import rows
from models.hub.gguf_head import read_head
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.tiny_architectures import ARCHITECTURES, RECURRENT, write_tiny_architecture

KINDS = {
    "qwen3": "dense",
    "gemma3": "sliding window of 32 tokens",
    "qwen3moe": "mixture of experts, 2 of 8",
    "mamba2": "recurrent",
    "lfm2": "hybrid",
    "granitehybrid": "hybrid",
    "qwen3next": "hybrid, mixture of experts, 2 of 8",
    "qwen35": "hybrid",
}
MEANS = {  # what is told of drafts, with the architectures of which it is told
    "rejected draft tokens are taken back at no cost": set(ARCHITECTURES) - set(RECURRENT),
    "after a rejection a copy of the state is put back": set(RECURRENT),
    "reads more experts than one over a token": {"qwen3moe", "qwen3next"},
    "the KV cache keeps what the window has passed": {"gemma3"},
}


def _cache(path: Path, context: int) -> int:
    """Bytes that llama.cpp takes for a text of this many tokens."""
    backend = LlamaBackend(LoadOptions(model=path, context_length=context, threads=1))
    taken = backend.kv_bytes
    backend.close()
    return taken


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_kind_and_cache_of_each_architecture(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gguf"
    write_tiny_architecture(name, path)
    model = describe_gguf(name, [read_head(path)])
    assert model.layers.words == KINDS[name] and model.quantization == "F32"
    token_bytes = (_cache(path, 96) - _cache(path, 32)) / 64  # without the states, whose size no text changes
    assert 2 * model.kv_numbers <= token_bytes <= 2 * model.kv_numbers + 24  # states have each token's position, too
    told = dict(rows(model, reply_style))["speculation"]
    assert {part for part in MEANS if part in told} == {part for part, names in MEANS.items() if name in names}
    assert (model.bytes_a_token < model.weight_bytes) == ("experts" in KINDS[name])
