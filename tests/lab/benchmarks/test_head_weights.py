"""A written head drafts on llama.cpp what its weights draft in PyTorch: names, layouts and the hidden states agree."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-torch`")
pytest.importorskip("tokenizers", reason="tokenizers is not installed: `make test-torch`")
pytest.importorskip("backends.llama_cpp.library", reason="needs llama-cpp-python")

from torch.nn import functional  # noqa: E402

from backends.llama_cpp.load import load  # noqa: E402
from backends.trial.tiny_llama import TinyModel  # noqa: E402
from lab.benchmarks.head_acceptance import generated  # noqa: E402
from models.export import export_hf  # noqa: E402
from models.gguf_file import read_gguf, write_gguf  # noqa: E402
from models.heads import with_head  # noqa: E402
from models.huggingface import huggingface_weights  # noqa: E402
from models.training.head import head_of, head_states, initial_head, shape_of  # noqa: E402
from models.training.model import EMBEDDINGS, hidden_states  # noqa: E402
from specpair.engines.load_options import HEAD, LoadOptions  # noqa: E402

pytestmark = pytest.mark.engine("torch")


def test_llama_cpp_drafts_what_the_weights_draft(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    export_hf(TinyModel(tmp_path / "tiny", intermediate_size=128).folder, tmp_path / "target.gguf")
    target = read_gguf(tmp_path / "target.gguf")
    shape, prompt = shape_of(target), list(range(40, 60))
    weights = {name: torch.tensor(data) for name, data in huggingface_weights(target, shape.config).items()}
    head = initial_head(weights, shape)
    write_gguf(with_head(target, head_of(head, shape.layers)), tmp_path / "both.gguf")
    options = LoadOptions(model=tmp_path / "both.gguf", head=HEAD, slots=1, context_length=128, threads=1)
    with closing(load(options)) as backend:
        rounds = generated(backend, prompt, 2, 40)

    equal, at = [], len(prompt) + 1
    text = prompt + rounds.text
    with torch.no_grad():
        for draft, accepted in zip(rounds.drafts, rounds.accepted, strict=True):
            ids, states = text[:at], hidden_states(weights, shape, torch.tensor([text[:at]]))
            before = torch.cat([torch.zeros(1, 1, shape.hidden), states[:, :-1]], dim=1)
            for token in draft:
                embedded = functional.embedding(torch.tensor([ids]), weights[EMBEDDINGS])
                last = head_states(head, shape, embedded, before)[:, -1:]
                equal.append(int((last @ weights[EMBEDDINGS].T).argmax()) == token)
                ids, before = [*ids, token], torch.cat([before, last], dim=1)
            at += 1 + accepted
    assert np.mean(equal) > 0.9  # llama.cpp rounds activations, so a few ties end otherwise
