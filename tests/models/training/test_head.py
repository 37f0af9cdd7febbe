"""Training a head: its loss falls, its agreement is reported, and its file becomes a model with its target."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-torch`")
pytest.importorskip("tokenizers", reason="tokenizers is not installed: `make test-torch`")

from models.export import export_hf  # noqa: E402
from models.gguf_file import Gguf, read_gguf  # noqa: E402
from models.heads import with_head  # noqa: E402
from models.huggingface import huggingface_weights  # noqa: E402
from models.training.corpus import Corpus  # noqa: E402
from models.training.head import HeadRecipe, chain_loss, head_of, initial_head, shape_of, train_head  # noqa: E402

pytestmark = pytest.mark.engine("torch")

TEXT = Path(__file__).read_text(encoding="utf-8")


@pytest.fixture
def target(tmp_path: Path, tiny: Any) -> Gguf:
    """A tiny Llama model with tied embeddings."""
    torch.set_num_threads(1)
    export_hf(tiny(intermediate_size=128).folder, tmp_path / "target.gguf")
    return read_gguf(tmp_path / "target.gguf")


def weights_of(model: Gguf) -> dict[str, Any]:
    """The model's weights as tensors under their Hugging Face names."""
    return {name: torch.tensor(data) for name, data in huggingface_weights(model, shape_of(model).config).items()}


def test_training_lowers_the_loss_and_reports_the_agreement(target: Gguf) -> None:
    said: list[str] = []
    recipe = HeadRecipe(steps=24, batch=4, length=32, sample=4)
    head = train_head(target, Corpus([TEXT], [TEXT]), recipe, said.append)
    assert said[-1].startswith("head: the picks of 3 passes in a row agree with the target's in 0.")
    shape, weights = shape_of(target), weights_of(target)
    ids = torch.randint(2, 258, (4, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        start, end = (chain_loss(each, weights, shape, ids).item() for each in (initial_head(weights, shape), head))
    assert end < start - 0.5
    joined = with_head(target, head_of(head, shape.layers))
    assert (joined.architecture, joined.layers, joined.get("nextn_predict_layers")) == ("glm4moe", 3, 1)
