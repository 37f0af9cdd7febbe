"""Verifiers over vLLM, the folders of their models, and what they are compared with."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models import DEFAULT_TARGET
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.load_options import LoadOptions
from specpair.grammar.of_text import processors_of
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.row_changes import ProcessedRows
from specpair.speculation.sampling.sampling import Sampling, choose
from tests.verifier_server.conftest import LiveServer
from verifier_server.settings import Settings


def folder_of(file: Path, folder: Path, dtype: str = "float32") -> Path:
    """Write the model of a GGUF file as a folder in Hugging Face layout, its weights as `dtype`. Returns the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    of_file = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    weights = getattr(torch, dtype)
    read = AutoModelForCausalLM.from_pretrained(**of_file, dtype=weights)
    # The library saves no model that was read from a file of ggml: so another one is saved, which has its weights.
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read.config, dtype=weights)
    model.load_state_dict(read.state_dict(), assign=True)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**of_file).save_pretrained(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    size = model.config.vocab_size
    tokenizer["added_tokens"] = [each for each in tokenizer["added_tokens"] if each["id"] < size]  # but for padding
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def folder_with_head(folder: Path, tokenizer: Path) -> Path:
    """Write a tiny GLM-4 MoE of random weights with an MTP head that drafts what the model will pick.

    No layer adds anything, so the model's next token depends on the last one alone; the head passes on that one's
    embedding. `tokenizer`: the folder with the tokenizer. Returns `folder`.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

    config = Glm4MoeConfig(
        **{"vocab_size": 4096, "hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 64},
        **{"num_hidden_layers": 2, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "head_dim": 32},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2},
        **{"max_position_embeddings": 2048, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1},
    )
    torch.manual_seed(0)
    Glm4MoeForCausalLM(config).save_pretrained(folder)
    file, size = folder / "model.safetensors", config.hidden_size
    weights = load_file(file)
    head = {name.replace(".1.", ".2.", 1): each.clone() for name, each in weights.items() if "layers.1." in name}
    layer = "model.layers.2."
    head |= {f"{layer}{name}.weight": torch.ones(size) for name in ("enorm", "hnorm", "shared_head.norm")}
    head[f"{layer}eh_proj.weight"] = torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1)
    head[f"{layer}shared_head.head.weight"] = weights["lm_head.weight"].clone()
    head[f"{layer}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    weights |= head
    for name, each in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            each.zero_()
    save_file(weights, file, metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder


NEAR = 1e-3  # of two scores that float32 on two engines may order in both ways
Start = Callable[..., LiveServer]


class Reference:
    """Plain decoding on torch."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.vocabulary = backend, backend.vocabulary
        self._held: list[int] = []  # tokens in slot 0

    def row(self, ids: list[int], sampling: Sampling, prompt_len: int) -> Logits:
        """The logits behind `ids`, as the text's processors change them."""
        start = len(self._held) if self._held == ids[: len(self._held)] and len(self._held) < len(ids) else 0
        [rows] = self.backend.extend([Entry(0, start, ids[start:], len(ids) - start - 1)])
        self._held = list(ids)
        chain = processors_of(sampling, self.vocabulary, prompt_len)
        if chain is None:
            return rows[0].copy()
        chain.commit(ids)
        return ProcessedRows(chain, rows, [])[0].copy()

    def check(self, prompt: list[int], text: list[int], sampling: Sampling = Sampling()) -> None:
        """The text is the one that plain decoding gives, but for near-ties, behind which it is followed."""
        for at, token in enumerate(text):
            row = self.row([*prompt, *text[:at]], sampling, len(prompt))
            position = len(prompt) + at
            own = choose(row, sampling, position)
            if own != token:
                scores = [float(row[each]) for each in (own, token)]
                if not sampling.greedy:
                    key = gumbel.row_key(sampling.seed, position)
                    noise = [gumbel.gumbel_one(key, each) for each in (own, token)]
                    scores = [score / sampling.temperature + more for score, more in zip(scores, noise, strict=True)]
                assert abs(scores[0] - scores[1]) < NEAR, f"token {at} is {token}, and {own} on torch: {scores}"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped target, its weights as float32."""
    return folder_of(DEFAULT_TARGET, tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def reference(folder: Path) -> Iterator[Reference]:
    from backends.torch.load import load

    backend = load(LoadOptions(model=folder, context_length=512))
    yield Reference(backend)
    backend.close()


@pytest.fixture(scope="session")
def start(folder: Path) -> Iterator[Start]:
    """Starts verifiers over vLLM: `start(slots=4, vllm_args={…})`."""
    running: list[LiveServer] = []
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

    def begin(vllm_args: dict[str, Any] | None = None, **given: Any) -> LiveServer:
        given = {"model": folder, "slots": 8, "context": 512, "dtype": "float32", "max_drafts": 16, **given}
        table = {"enforce_eager": True, **(vllm_args or {})}
        running.append(LiveServer(Settings(backend="vllm", vllm_args=table, **given), None))
        running[-1].http.get("/health")
        assert running[-1].service.loader.wait(300.0)
        assert running[-1].service.loader.failure is None, running[-1].service.loader.failure
        return running[-1]

    yield begin
    for live in running:
        live.close()


@pytest.fixture(scope="session")
def verifier_on_vllm(start: Start) -> LiveServer:
    """One for most tests, since vLLM takes half a minute to start."""
    return start()


@pytest.fixture(scope="session")
def drafting_on_vllm(start: Start) -> LiveServer:
    """One whose vLLM drafts by its own n-gram lookup, too."""
    lookup = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    return start({"speculative_config": lookup})
