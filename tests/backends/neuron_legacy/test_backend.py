"""The neuron_legacy backend on a stand-in for its library: its passes, defaults and attributes."""

import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.neuron_legacy.backend import CORES
from backends.trial.checks import random_batches
from specpair.engines.backend import Entry
from specpair.engines.errors import EngineFailure, EngineLost, ModelLoadError
from tests.backends.neuron_legacy.conftest import IDS, Load
from tests.models.conftest import TinyModel, reference_logits
from verifier_server.loading import ModelLoader
from verifier_server.settings import Settings

pytestmark = pytest.mark.engine("torch")  # the stand-in needs torch

Call = tuple[list[list[int]], list[list[int]], list[int]]  # ids and cells of each slot, slots
WIDTHS = (4, 13, 30)


class Recorded:
    """The further calls of a model of the library."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prompts: list[Call] = []
        self.speculative: list[Call] = []
        self.continuations: list[tuple[int, list[int], int, int]] = []  # width, cells, slot, index of the last token
        for name, calls in (("forward", self.prompts), ("speculative_forward", self.speculative)):

            def note(ids: Any, *, into: Any = calls, then: Any = getattr(model, name), **given: Any) -> Any:
                into.append((ids.tolist(), given["cache_ids"].tolist(), given["start_ids"].tolist()))
                return then(ids, **given)

            monkeypatch.setattr(model, name, note)
        for width, program in model.decoder_lm_head_for_window_context.items():

            def run(hidden: Any, cells: Any, slots: Any, last: Any, *unused: Any, then: Any = program) -> Any:
                self.continuations.append((hidden.shape[1], cells[0].tolist(), int(slots), int(last)))
                return then(hidden, cells, slots, last, *unused)

            run.inputs_sdim = program.inputs_sdim  # type: ignore[attr-defined]
            monkeypatch.setitem(model.decoder_lm_head_for_window_context, width, run)


def test_logits_equal_the_reference_up_to_the_end_of_the_context(load: Load, tiny: TinyModel) -> None:
    backend = load()
    expected = reference_logits(tiny.config, tiny.weights, IDS[:127])
    for logits_from in (0, 1, 50, 126):
        got = backend.extend([Entry(1, 0, IDS[:127], logits_from)])[0]
        assert np.abs(got - expected[logits_from:]).max() < 1e-4
    for start in (1, 60, 120, 126):
        got = backend.extend([Entry(1, start, IDS[start:127], 0)])[0]
        assert np.abs(got - expected[start:]).max() < 1e-4


def test_release_clears_nan_from_every_cell_and_layer(load: Load, tmp_path: Path) -> None:
    """Attention multiplies the values that it masks by 0, and 0 times NaN is NaN."""
    bad, tiny = 200, TinyModel(tmp_path / "untied", tie_word_embeddings=False)
    tiny.weights["model.embed_tokens.weight"][bad] = np.nan
    tiny.write_weights()
    backend = load(model=tiny.folder, slots=3)
    ids = [each for each in IDS[:40] if each != bad]
    expected, _ = (backend.extend([Entry(slot, 0, ids, 0)])[0].copy() for slot in (0, 2))
    assert not np.isfinite(backend.extend([Entry(1, 0, [bad, *ids], 0)])[0]).any()
    assert backend.has_overflowed(1)
    backend.release(1)
    assert not backend.has_overflowed(1) and backend.length(1) == 0
    assert np.isfinite(load.model(backend).device.caches.numpy()).all()
    for slot, start in ((1, 0), (0, 20), (2, 30)):
        got = backend.extend([Entry(slot, start, ids[start:], 0)])[0]
        assert np.abs(got - expected[start:]).max() < 1e-4


def test_all_passes_have_safe_kinds_and_widths(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes are prompts of at least two ids from cell 0 on, or have a compiled width and start at a higher cell."""
    backend = load(slots=3, context_length=255)
    calls = Recorded(load.model(backend), monkeypatch)
    for batch in random_batches(backend, 150):
        for entry, logits in zip(batch, backend.extend(batch), strict=True):
            assert logits.shape == (len(entry.tokens) - entry.logits_from, backend.vocabulary.size)
    assert len(calls.prompts) > 5 and len(calls.speculative) > 100 and len(calls.continuations) > 5
    for ids, cells, _ in calls.prompts:
        assert 2 <= len(ids[0]) == len(cells[0]) <= 128
        assert cells[0] in ([0, 0], list(range(len(ids[0]))))
    for ids, cells, slots in calls.speculative:
        assert len(slots) == 1 or slots == [0, 1, 2]
        for each, taken in zip(ids, cells, strict=True):
            assert len(each) == len(taken) and len(each) in WIDTHS
            assert 0 < taken[0] == min(taken) and max(taken) <= 255
    for width, cells_taken, _, last in calls.continuations:
        assert width == len(cells_taken) == 128 and 0 < cells_taken[0] and last < width
    widths = {len(ids[0]) for ids, _, _ in calls.speculative}
    assert widths == set(WIDTHS)
    assert {len(slots) for _, _, slots in calls.speculative} == {1, 3}


def test_long_prompts_go_on_in_continuations(load: Load, monkeypatch: pytest.MonkeyPatch, tiny: TinyModel) -> None:
    """A prompt takes few passes, and no logits are fetched that nobody asked for."""
    backend = load(context_length=511, batch_tokens=256)
    calls = Recorded(load.model(backend), monkeypatch)
    expected = reference_logits(tiny.config, tiny.weights, IDS[:500])
    assert backend.extend([Entry(0, 0, IDS[:200], 200)])[0].shape == (0, 264)
    assert backend.extend([Entry(0, 200, IDS[200:456], 256)])[0].shape == (0, 264)
    [last] = backend.extend([Entry(0, 456, IDS[456:500], 43)])
    assert [width for width, *_ in calls.continuations] == [256, 128]
    assert calls.continuations[1][3] == 43
    assert len(calls.prompts) == 1 and calls.speculative == []
    assert np.abs(last - expected[499:]).max() < 1e-4
    [tail] = backend.extend([Entry(0, 300, IDS[300:440], 100)])
    assert [width for width, *_ in calls.continuations[2:]] == [128]
    assert [len(ids[0]) for ids, _, _ in calls.speculative] == [30, 13]
    assert np.abs(tail - expected[400:440]).max() < 1e-4


def test_lack_of_memory_while_compiling_names_the_setting(
    load: Load, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any) -> None:
        raise BrokenProcessPool("A process in the process pool was terminated abruptly")

    monkeypatch.setattr(library.LlamaForSampling, "to_neuron", fails)
    with pytest.raises(ModelLoadError, match=r"^compile_workers 3: the system ended a compiler") as caught:
        load(compile_workers=3)
    assert caught.value.setting == "compile_workers"


def test_failing_pass_empties_its_slots_and_the_next_works(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = load()
    backend.extend([Entry(0, 0, IDS[:5], 5), Entry(1, 0, IDS[:5], 5)])

    works = load.model(backend).speculative_forward

    def fails_once(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(load.model(backend), "speculative_forward", works)
        raise AssertionError("Copying tensor from host to device")

    with monkeypatch.context() as patch:
        patch.setattr(load.model(backend), "speculative_forward", fails_once)
        with pytest.raises(EngineFailure, match="transformers-neuronx failed: AssertionError: Copying tensor"):
            backend.extend([Entry(0, 5, IDS[5:7], 0)])
        patch.setattr(load.model(backend), "speculative_forward", lambda *_, **__: np.zeros((4, 264)))
        with pytest.raises(EngineFailure, match=r"returned logits of shape \(4, 264\), expected was \(4, 264, 1\)"):
            backend.extend([Entry(1, 5, IDS[5:7], 0)])
    assert [backend.length(slot) for slot in range(2)] == [0, 0]
    assert backend.extend([Entry(0, 0, IDS[:3], 0)])[0].shape == (3, 264)


def test_engine_whose_passes_keep_failing_is_lost(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an error of the hardware: a supervisor has to restart the process."""
    backend = load()
    backend.extend([Entry(0, 0, IDS[:5], 5)])
    calls = []

    def fails(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise RuntimeError("nrt_execute status=1202")

    monkeypatch.setattr(load.model(backend), "speculative_forward", fails)
    lost = r"^transformers-neuronx failed: RuntimeError: nrt_execute status=1202; so does every pass since: restart"
    for _ in range(2):
        with pytest.raises(EngineLost, match=lost):
            backend.extend([Entry(1, 0, IDS[:5], 0)])
    assert len(calls) == 2, "the pass, and one that tells whether the engine is lost"


@pytest.mark.parametrize("degree", ["auto", 2])
def test_server_with_a_draft_model_loads_both_at_one_degree(
    library: Any, tiny: TinyModel, tmp_path: Path, degree: int | str
) -> None:
    """Mode fused with tensor parallelism: all models of a process need the same degree."""
    draft = TinyModel(tmp_path / "draft", num_hidden_layers=1)
    settings = Settings(
        backend="neuron_legacy",
        model=tiny.folder,
        draft_model=draft.folder,
        slots=2,
        context=127,
        dtype="float32",
        tensor_parallel=degree,
        batch_tokens=100,
    )
    loader = ModelLoader(settings, time.monotonic, lambda: None)
    loader.start()
    assert loader.wait(60) and loader.failure is None
    models = loader.loaded()
    assert models.drafting is not None
    models.stop()
    assert CORES.degree is None, "both models gave their memory back"
