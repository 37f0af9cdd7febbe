"""The neuron_legacy backend on a stand-in for its library: its passes, defaults and attributes."""

from typing import Any

import numpy as np
import pytest

from backends import registry
from backends.base import EngineFailure, Entry, LoadOptions
from backends.neuron.shapes import LENGTHS
from backends.trial.random_batches import random_batches
from tests.backends.neuron.conftest import IDS, Load
from tests.models.conftest import TinyModel, reference_logits

pytestmark = pytest.mark.engine("torch")  # the stand-in needs torch

Call = tuple[list[int], list[int], int]  # ids, cells, slot


def recorded(backend: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Call], list[Call]]:
    """Record all further calls of the library: prompt passes, speculative passes."""
    prompts: list[Call] = []
    speculative: list[Call] = []
    for name, calls in (("forward", prompts), ("speculative_forward", speculative)):

        def note(ids: Any, *, into: Any = calls, then: Any = getattr(backend._model, name), **given: Any) -> Any:
            into.append((ids[0].tolist(), given["cache_ids"][0].tolist(), int(given["start_ids"])))
            return then(ids, **given)

        monkeypatch.setattr(backend._model, name, note)
    return prompts, speculative


def test_logits_equal_the_reference_up_to_the_end_of_the_context(load: Load, tiny: TinyModel) -> None:
    backend = load()
    expected = reference_logits(tiny.config, tiny.weights, IDS[:127])
    for logits_from in (0, 1, 50, 126):
        got = backend.extend([Entry(1, 0, IDS[:127], logits_from)])[0]
        assert np.abs(got - expected[logits_from:]).max() < 1e-4
    for start in (1, 60, 120, 126):
        got = backend.extend([Entry(1, start, IDS[start:127], 0)])[0]
        assert np.abs(got - expected[start:]).max() < 1e-4


def test_all_passes_have_safe_kinds_and_widths(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes are prompts of at least two ids from cell 0 on, or have a compiled width and start at a higher cell."""
    backend = load()
    prompts, speculative = recorded(backend, monkeypatch)
    for batch in random_batches(backend, 150):
        for entry, logits in zip(batch, backend.extend(batch), strict=True):
            assert logits.shape == (len(entry.tokens) - entry.logits_from, backend.vocabulary.size)
    assert len(prompts) > 5 and len(speculative) > 200
    for ids, cells, _ in prompts:
        assert 2 <= len(ids) == len(cells) <= 127
        assert cells in ([0, 0], list(range(len(ids))))
    for ids, cells, _ in speculative:
        assert len(ids) == len(cells) and len(ids) in LENGTHS
        assert 0 < cells[0] == min(cells) and max(cells) <= 127
    assert {len(ids) for ids, _, _ in speculative} == set(LENGTHS)


def test_entries_are_cut_into_prompt_and_speculative_passes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = load()
    prompts, speculative = recorded(backend, monkeypatch)
    backend.extend([Entry(0, 0, IDS[:1], 0), Entry(1, 0, IDS[:9], 9)])
    assert prompts == [([IDS[0], 0], [0, 0], 0), (IDS[:9], list(range(9)), 1)]
    assert speculative == []
    backend.extend([Entry(0, 0, IDS[:7], 2), Entry(1, 7, IDS[7:9], 1)])
    assert prompts[2:] == [(IDS[:3], [0, 1, 2], 0)]
    assert speculative == [(IDS[3:7], [3, 4, 5, 6], 0), ([*IDS[7:9], 0, 0], [7, 8, 9, 10], 1)]
    backend.extend([Entry(0, 7, IDS[7:126], 119)])
    backend.extend([Entry(0, 126, IDS[126:127], 0)])
    assert [len(ids) for ids, _, _ in speculative[2:]] == [63, 63, 4]
    assert speculative[-1] == ([IDS[126], 0, 0, 0], [126, 127, 127, 127], 0)


def test_attributes_describe_the_backend(load: Load, tiny: TinyModel) -> None:
    (tiny.folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    backend = load(slots=3, context_length=200)
    assert (backend.name, backend.model_name) == ("neuron_legacy", "tiny")
    assert (backend.slots, backend.context_length, backend.max_batch_tokens) == (3, 200, 128)
    assert (backend.can_copy, backend.max_rollback) == (False, None)
    assert backend.chat_template == "{{ messages }}"
    assert backend.vocabulary.size == tiny.config["vocab_size"]
    caches = backend._model.device.caches
    assert backend.kv_bytes == caches.numel() * caches.element_size()
    backend.close()
    backend.close()


def test_defaults_are_chosen_from_the_model(load: Load) -> None:
    backend = load(slots=None, context_length=None, dtype=None, batch_tokens=8)
    assert backend.slots == 4
    assert backend.context_length == 511, "as trained, less a cell for padding"
    assert backend._model.config.amp == "bf16"
    assert backend._model.config.tp_degree == 1
    assert backend._model.context_buckets == [128, 512]
    assert backend._model.token_buckets == [512]
    assert backend.extend([Entry(0, 0, IDS[:5], 3)])[0].dtype == np.float32


def test_drafter_gets_one_slot_per_text(load: Load) -> None:
    """A drafter asks for one slot per continuation, to copy the text to. This engine cannot copy."""
    assert load(slots=6, shared_cells=640).slots == 1
    assert load(slots=1, shared_cells=0).slots == 1
    assert load(slots=6, shared_cells=512, contexts=2).slots == 2
    assert load(slots=3).slots == 3, "a verifier's sessions have no text in common"


def test_load_runs_every_program_once(
    load: Load, library: Any, monkeypatch: pytest.MonkeyPatch, tiny: TinyModel
) -> None:
    from tests.stand_ins.transformers_neuronx.device import Device

    widths: list[int] = []
    run = Device.run

    def note(self: Device, width: int, *arguments: Any, **named: Any) -> Any:
        widths.append(width)
        return run(self, width, *arguments, **named)

    monkeypatch.setattr(Device, "run", note)
    progress: list[float] = []
    options = LoadOptions(model=tiny.folder, slots=2, context_length=300, batch_tokens=200, dtype="float32")
    backend = registry.load("neuron_legacy", options, progress.append)
    assert widths == [128, 256, 384, *LENGTHS]
    assert progress == sorted(set(progress))
    assert progress[-1] == 1.0 and len(progress) == 3 + len(widths)
    assert backend.length(0) == 0


def test_failing_pass_empties_its_slots_and_the_next_works(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = load()
    backend.extend([Entry(0, 0, IDS[:5], 5), Entry(1, 0, IDS[:5], 5)])

    def fails(*_: Any, **__: Any) -> None:
        raise AssertionError("Copying tensor from host to device")

    with monkeypatch.context() as patch:
        patch.setattr(backend._model, "speculative_forward", fails)
        with pytest.raises(EngineFailure, match="transformers-neuronx failed: AssertionError: Copying tensor"):
            backend.extend([Entry(0, 5, IDS[5:7], 0)])
        patch.setattr(backend._model, "speculative_forward", lambda *_, **__: np.zeros((4, 264)))
        with pytest.raises(EngineFailure, match=r"returned logits of shape \(4, 264\), expected was \(4, 264, 1\)"):
            backend.extend([Entry(1, 5, IDS[5:7], 0)])
    assert [backend.length(slot) for slot in range(2)] == [0, 0]
    assert backend.extend([Entry(0, 0, IDS[:3], 0)])[0].shape == (3, 264)
