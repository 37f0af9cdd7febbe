"""Training: the parts compute what the papers say, and a small run produces files that llama.cpp loads."""

import json
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-torch`")
pytest.importorskip("tokenizers", reason="tokenizers is not installed: `make test-torch`")

from models.export import ExportError, export_hf  # noqa: E402
from models.training.corpus import Corpus, train_tokenizer  # noqa: E402
from models.training.model import (  # noqa: E402  # noqa: E402
    EMBEDDINGS,
    Shape,
    cross_entropy,
    fit,
    held_out_loss,
    imitation,
    initial_weights,
    load,
    logits,
    save,
    schedule,
)
from models.training.train import DRAFT, SMOKE, TARGET, main, make_pair  # noqa: E402

SMALL = Shape(hidden=32, layers=2, heads=2, kv_heads=1, ffn=48, head_dim=16, vocabulary=300)
SOURCE = Path(json.__file__).parent  # a few files of the library that runs this


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def stirred(shape: Shape) -> dict[str, Any]:
    """Initial weights with the zero projections filled in, so that every layer matters."""
    generator = torch.Generator().manual_seed(3)
    weights = initial_weights(shape, seed=1)
    return {
        name: (weight.detach() + 0.1 * torch.randn(weight.shape, generator=generator)).requires_grad_()
        for name, weight in weights.items()
    }


def test_forward_pass_equals_the_reference(reference: Any) -> None:
    weights, ids = stirred(SMALL), [0, 7, 299, 12, 12, 150]
    with torch.no_grad():
        actual = logits(weights, SMALL, torch.tensor([ids, ids]))
    arrays = {name: weight.detach().numpy() for name, weight in weights.items()}
    expected = reference(SMALL.config(0, 1), arrays, ids)
    np.testing.assert_allclose(actual[0].numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(actual[1].numpy(), expected, atol=1e-4)


def test_shapes_of_the_pair_have_the_stated_sizes() -> None:
    sizes = [sum(weight.numel() for weight in initial_weights(shape, 0).values()) for shape in (TARGET, DRAFT)]
    assert sizes == [7_344_384, 918_144]


def test_schedule_warms_up_holds_and_decays() -> None:
    rates = [schedule(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 50)
    assert rates[49:400] == [1.0] * 351
    assert rates[700] == pytest.approx(0.02 + 0.98 * 0.5)
    assert rates[-1] == pytest.approx(0.02, abs=0.002)
    assert max(schedule(step, 4) for step in range(4)) == 1.0  # a short run warms up all the same


def recorder(losses: list[float]) -> Callable[[int, float], None]:
    """A report function for ``fit`` that keeps the losses."""
    return lambda done, loss: losses.append(loss)


def test_fitting_lowers_the_loss_and_repeats_exactly() -> None:
    rows = np.random.default_rng(0).integers(2, 40, size=(4, 33))
    histories = []
    for _ in range(2):
        losses: list[float] = []
        weights = initial_weights(SMALL, seed=1)
        fit(weights, SMALL, repeat(rows), 25, cross_entropy, recorder(losses))
        histories.append(losses)
    assert histories[0] == histories[1]
    assert histories[0][0] == pytest.approx(np.log(300), abs=0.3)
    assert histories[0][-1] < np.log(38) + 0.1  # it knows by now which ids occur


def test_imitation_is_zero_for_the_teacher_and_positive_for_another() -> None:
    teacher, student = stirred(SMALL), initial_weights(SMALL, seed=2)
    rows = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(0))
    loss = imitation(teacher, SMALL)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    assert loss(logits(teacher, SMALL, inputs), inputs, targets).item() == pytest.approx(0, abs=1e-5)
    predicted = logits(student, SMALL, inputs)
    p = logits(teacher, SMALL, inputs).softmax(-1)
    expected = (p * (p.log() - predicted.log_softmax(-1))).sum(-1).mean().item()
    assert expected > 0.05
    assert loss(predicted, inputs, targets).item() == pytest.approx(expected, rel=1e-3)


def test_held_out_loss_counts_every_token_but_the_first_once() -> None:
    weights = initial_weights(SMALL, seed=1)
    with torch.no_grad():
        weights[EMBEDDINGS].zero_()  # every id equally likely
    for length in (5, 8, 100):
        tokens = np.arange(21, dtype=np.uint16)
        assert held_out_loss(weights, SMALL, tokens, length) == pytest.approx(np.log(300))


def test_saved_weights_are_loaded_as_in_the_file(tmp_path: Path) -> None:
    weights = stirred(SMALL)
    save(tmp_path / "model", weights, SMALL)
    again = load(tmp_path / "model", SMALL)
    assert again.keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(again[name].detach(), weight.detach().half().float(), atol=0, rtol=0)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_load_refuses_weights_of_other_sizes(tmp_path: Path) -> None:
    save(tmp_path / "model", stirred(SMALL), SMALL)
    with pytest.raises(ExportError, match="holds a model of other sizes: name another folder with --out"):
        load(tmp_path / "model", SMOKE.target)


def test_tokenizer_round_trips_any_text() -> None:
    tokenizer = train_tokenizer(["def f(self):\n    return self.x\n"] * 20, 290)
    assert tokenizer.get_vocab_size() <= 290
    assert [tokenizer.id_to_token(index) for index in (0, 1)] == ["<|begin_of_text|>", "<|end_of_text|>"]
    for text in ("def f(self):\n", "\tnaïve — 日本 \U0001f600\r\n  ", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_pair_is_made_exported_and_not_made_again(tmp_path: Path, engine: Any) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCE.glob("*.py"))]
    lines: list[str] = []
    make_pair(SMOKE, Corpus(texts[1:], texts[:1]), tmp_path, lines.append, clock=lambda: 0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "draft-plain", "target", "tokenizer.json"]
    assert "target: 86,336 parameters, 12 steps" in lines
    losses = [float(line.split()[3]) for line in lines if "held-out" in line and "nats" in line]
    assert len(losses) == 3
    assert all(loss < np.log(384) for loss in losses)

    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("target", "draft")}
    lines.clear()
    make_pair(SMOKE, Corpus(texts[1:], texts[:1]), tmp_path, lines.append)
    assert [line for line in lines if "kept" in line] == [
        "tokenizer.json: already there, kept",
        "target: already there, kept",
        "draft-plain: already there, kept",
        "draft: already there, kept",
    ]
    for name, content in weights.items():
        assert (tmp_path / name / "model.safetensors").read_bytes() == content

    export_hf(tmp_path / "target", tmp_path / "target.gguf", "f16")
    model, trained = engine(tmp_path / "target.gguf"), load(tmp_path / "target", SMOKE.target)
    ids = model.encode("import json\n\ndef load(file):\n    return ", special=True)
    with torch.no_grad():
        expected = logits(trained, SMOKE.target, torch.tensor([ids]))[0].numpy()
    assert np.abs(model.logits(ids) - expected).max() < 0.02


def test_command_line_reports_errors_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "pair"), "--source", str(tmp_path), "--smoke", "--threads", "1"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} is not a whole standard library: 0 files")
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "pair"), "--steps", "0"])
    assert "0 is not at least 1" in capsys.readouterr().err
