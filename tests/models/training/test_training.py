"""Training: the corpus is equal on all machines, the parts compute what the papers say, a run makes files."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-torch`")
pytest.importorskip("tokenizers", reason="tokenizers is not installed: `make test-torch`")

from models.export import export_hf  # noqa: E402
from models.training.corpus import Corpus, CorpusError, is_chosen, read_corpus, windows  # noqa: E402
from models.training.model import (  # noqa: E402
    Shape,
    cross_entropy,
    fit,
    imitation,
    initial_weights,
    load,
    logits,
    save,
)
from models.training.train import Recipe, main, make_pair  # noqa: E402

pytestmark = pytest.mark.engine("torch")


def library(root: Path, **files: str) -> Path:
    """A standard library with one held-out file and these files, whose names have __ for a slash."""
    for name, text in {"fractions": "held out", **files}.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_small_large_and_non_utf_8_files_are_left_out(tmp_path: Path) -> None:
    body = "x" * 300
    root = library(tmp_path, os=body, tiny="x", huge="x" * 300_001, encodings__ascii=body, lib__re=body + "y")
    (tmp_path / "latin.py").write_bytes(b"\xe9" * 300)
    corpus = read_corpus(root)
    assert corpus.training == [body + "y", body]  # lib/re.py, os.py
    assert corpus.held_out == ["held out"]


def test_choice_does_not_depend_on_the_machine() -> None:
    chosen = [index for index in range(12) if is_chosen(f"test/test_{index}.py")]
    assert chosen == [0, 1, 2, 3, 4, 6, 8, 10]


def test_pass_takes_every_window_once() -> None:
    tokens = np.arange(103, dtype=np.uint16)
    rows = np.concatenate(list(islice(windows(tokens, length=10, batch=3, seed=1), 3)))
    assert rows.shape == (9, 11)
    starts = sorted(int(row[0]) for row in rows)
    assert [later - earlier for earlier, later in pairwise(starts)] == [10] * 8
    assert all((row == np.arange(row[0], row[0] + 11)).all() for row in rows)


def test_windows_repeat_for_a_seed_and_shift_with_each_pass() -> None:
    tokens = np.arange(500, dtype=np.uint16)
    first, again = (list(islice(windows(tokens, length=10, batch=7, seed=5), 20)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert len({int(rows[0, 0]) % 10 for rows in first}) > 1


def test_too_little_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="30 tokens do not fill a batch of 4 windows of 10"):
        next(windows(np.zeros(30, dtype=np.uint16), length=10, batch=4, seed=0))


SMALL = Shape(hidden=32, layers=2, heads=2, kv_heads=1, ffn=48, head_dim=16, vocabulary=300)
TINY = Shape(hidden=64, layers=2, heads=2, kv_heads=1, ffn=96, head_dim=32, vocabulary=384)
SMOKE = Recipe(
    TINY, replace(TINY, hidden=32, layers=1), target_steps=12, draft_steps=12, distil_steps=6, batch=4, length=64
)
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
    expected = reference(SMALL.config, arrays, ids)
    np.testing.assert_allclose(actual[0].numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(actual[1].numpy(), expected, atol=1e-4)


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


def test_saved_weights_are_loaded_as_in_the_file(tmp_path: Path) -> None:
    weights = stirred(SMALL)
    save(tmp_path / "model", weights, SMALL)
    again = load(tmp_path / "model", SMALL)
    assert again.keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(again[name].detach(), weight.detach().half().float(), atol=0, rtol=0)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_pair_is_made_exported_and_not_made_again(tmp_path: Path, engine: Any) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCE.glob("*.py"))]
    lines: list[str] = []
    make_pair(SMOKE, Corpus(texts[1:], texts[:1]), tmp_path, lines.append)
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
    assert main(["--out", str(tmp_path / "pair"), "--source", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} is not a whole standard library: 0 files")
