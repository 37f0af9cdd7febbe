"""NaN and infinity in a pass: the text that has them ends, and nothing of them is left in the engine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from backends.scripted import Script, ScriptedBackend
from backends.trial.tiny_llama import TinyModel, write_tiny_gguf
from specpair.drafters.custom import FallbackDrafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits, overflowed
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.sampling.top_logits import top_logits_of

BAD, GOOD = 200, [5, 9, 17, 33, 65, 40]
NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """A tiny Llama that computes NaN where it reads the token BAD, and nowhere else."""
    model = TinyModel(tmp_path_factory.mktemp("overflow") / "tiny", tie_word_embeddings=False)
    model.weights["model.embed_tokens.weight"][BAD] = NAN
    model.write_weights()
    write_tiny_gguf(model, model.folder / "tiny.gguf")
    return model


def _llama(tiny: TinyModel, **options: Any) -> Backend:
    return load("llama_cpp", LoadOptions(tiny.folder / "tiny.gguf", 3, 96, threads=1, **options))


def _torch(tiny: TinyModel) -> Backend:
    return load("torch", LoadOptions(tiny.folder, 3, 96, threads=1, device="cpu"))


def _mlx(tiny: TinyModel) -> Backend:
    return load("mlx", LoadOptions(tiny.folder, 3, 96))


@pytest.fixture(
    params=[
        pytest.param(lambda tiny: _llama(tiny), id="llama_cpp"),
        pytest.param(lambda tiny: _llama(tiny, flash_attention=False), id="llama_cpp without flash attention"),
        pytest.param(lambda tiny: _llama(tiny, flash_attention=False, deterministic=True), id="llama_cpp, apart"),
        pytest.param(_torch, id="torch", marks=pytest.mark.engine("torch")),
        pytest.param(_mlx, id="mlx", marks=pytest.mark.engine("mlx")),
    ]
)
def backend(request: pytest.FixtureRequest, tiny: TinyModel) -> Any:
    make: Callable[[TinyModel], Backend] = request.param
    loaded = make(tiny)
    yield loaded
    loaded.close()


def _feed(backend: Backend, slot: int, tokens: Sequence[int]) -> Logits:
    return backend.extend([Entry(slot, backend.length(slot), tokens, 0)])[0].copy()


def test_nothing_of_an_overflow_is_left_when_its_slot_is_empty(backend: Backend) -> None:
    """Texts in the same and in other slots continue with the numbers that they have without it."""
    expected = _feed(backend, 0, GOOD)
    backend.release(0)
    _feed(backend, 1, GOOD[:3])  # it lies before the overflow, and is kept
    assert not np.isfinite(_feed(backend, 0, [BAD, *GOOD])).any()
    backend.copy(0, 2, 4)
    backend.release(2)
    backend.release(0)
    after = np.concatenate([_feed(backend, 1, GOOD[3:4]), _feed(backend, 1, GOOD[4:])])
    np.testing.assert_allclose(after, expected[3:], atol=0.05)
    np.testing.assert_allclose(_feed(backend, 0, GOOD), expected, atol=0.05)
    assert [backend.length(slot) for slot in range(3)] == [6, 6, 0]


@pytest.mark.parametrize(
    ("row", "bad"),
    [
        ([1.0, 2.0, 0.0], False),
        ([1.0, -INF, -INF], False),
        ([-INF, 1.0, 2.0], False),
        ([NAN, NAN, NAN], True),
        ([INF, -INF, INF], True),
        ([1.0, INF, NAN], True),
    ],
)
def test_rows_that_come_from_an_overflow(row: list[float], bad: bool) -> None:
    good = np.zeros(3, np.float32)
    rows = np.stack([good, np.array(row, np.float32)])
    assert overflowed(rows) is bad
    assert overflowed([top_logits_of(each, 3, 1.0) for each in rows]) is bad
    assert not overflowed(rows[:0])


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("has_top_logits", [False, True])
def test_a_draft_model_that_overflows_only_ends_the_drafting(value: float, has_top_logits: bool) -> None:
    class Overflows(ScriptedBackend):
        def logits_after(self, tokens: Sequence[int]) -> Logits:
            return np.full(self.vocabulary.size, value, np.float32)

    backend = Overflows(Script(), has_top_logits=has_top_logits)
    drafter = FallbackDrafter(lambda: ModelDrafter(backend, Sampling()))
    for _ in range(2):
        assert [each.confidence for each in drafter.expand([1, 2, 3], [[]], False).proposals] == [0.0]
    assert drafter.failure is not None
    assert "NaN or infinity" in drafter.failure
