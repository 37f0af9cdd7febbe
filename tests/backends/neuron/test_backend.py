"""The neuron_legacy backend on a stand-in for its library: its passes, its own choices, what it says of itself."""

from typing import Any

import numpy as np
import pytest

from backends import registry
from backends.base import EngineFailure, Entry, LoadOptions
from backends.neuron.shapes import LENGTHS
from tests.backends.neuron.conftest import IDS, Load
from tests.backends.random_batches import random_batches
from tests.models.conftest import TinyModel, reference_logits

pytestmark = pytest.mark.engine("torch")  # which the stand-in computes with

Call = tuple[list[int], list[int], int]  # ids, slots, row


def recorded(backend: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Call], list[Call]]:
    """What the library is called with from now on: prompts, speculative passes."""
    prompts: list[Call] = []
    speculative: list[Call] = []
    for name, calls in (("forward", prompts), ("speculative_forward", speculative)):

        def note(ids: Any, *, into: Any = calls, then: Any = getattr(backend._model, name), **given: Any) -> Any:
            into.append((ids[0].tolist(), given["cache_ids"][0].tolist(), int(given["start_ids"])))
            return then(ids, **given)

        monkeypatch.setattr(backend._model, name, note)
    return prompts, speculative


def test_it_says_what_the_weights_say_to_the_last_token_of_the_context(load: Load, tiny: TinyModel) -> None:
    backend = load()
    expected = reference_logits(tiny.config, tiny.weights, IDS[:127])
    for logits_from in (0, 1, 50, 126):
        got = backend.extend([Entry(1, 0, IDS[:127], logits_from)])[0]
        assert np.abs(got - expected[logits_from:]).max() < 1e-4
    for start in (1, 60, 120, 126):
        got = backend.extend([Entry(1, start, IDS[start:127], 0)])[0]
        assert np.abs(got - expected[start:]).max() < 1e-4


def test_no_pass_is_of_a_kind_or_width_that_would_do_harm(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any entry: prompts of two ids at least from slot 0 on, else compiled widths from a slot above it on."""
    backend = load()
    prompts, speculative = recorded(backend, monkeypatch)
    for batch in random_batches(backend, 150):
        for entry, logits in zip(batch, backend.extend(batch), strict=True):
            assert logits.shape == (len(entry.tokens) - entry.logits_from, backend.vocabulary.size)
    assert len(prompts) > 5 and len(speculative) > 200
    for ids, slots, _ in prompts:
        assert 2 <= len(ids) == len(slots) <= 127
        assert slots in ([0, 0], list(range(len(ids))))
    for ids, slots, _ in speculative:
        assert len(ids) == len(slots) and len(ids) in LENGTHS
        assert 0 < slots[0] == min(slots) and max(slots) <= 127
    assert {len(ids) for ids, _, _ in speculative} == set(LENGTHS)


def test_how_entries_are_cut(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_it_says_of_itself(load: Load, tiny: TinyModel) -> None:
    (tiny.folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    backend = load(rows=3, context_length=200)
    assert (backend.name, backend.model_name) == ("neuron_legacy", "tiny")
    assert (backend.rows, backend.context_length, backend.max_batch_tokens) == (3, 200, 128)
    assert (backend.can_copy, backend.max_rollback) == (False, None)
    assert backend.chat_template == "{{ messages }}"
    assert backend.vocabulary.size == tiny.config["vocab_size"]
    caches = backend._model.device.caches
    assert backend.kv_bytes == caches.numel() * caches.element_size()
    backend.close()
    backend.close()


def test_what_it_chooses_itself(load: Load) -> None:
    backend = load(rows=None, context_length=None, dtype=None, batch_tokens=8)
    assert backend.rows == 4
    assert backend.context_length == 511, "as trained, less a slot for pads"
    assert backend._model.config.amp == "bf16"
    assert backend._model.config.tp_degree == 1
    assert backend._model.context_buckets == [128, 512]
    assert backend._model.token_buckets == [512]
    assert backend.extend([Entry(0, 0, IDS[:5], 3)])[0].dtype == np.float32


def test_a_drafter_gets_one_row_for_each_text(load: Load) -> None:
    """It asks for a row a continuation, to copy the text to: here nothing can be copied."""
    assert load(rows=6, shared_cells=640).rows == 1
    assert load(rows=1, shared_cells=0).rows == 1
    assert load(rows=6, shared_cells=512, contexts=2).rows == 2
    assert load(rows=3).rows == 3, "a verifier's sessions have no text in common"


def test_every_program_runs_once_while_it_loads(
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
    options = LoadOptions(model=tiny.folder, rows=2, context_length=300, batch_tokens=200, dtype="float32")
    backend = registry.load("neuron_legacy", options, progress.append)
    assert widths == [128, 256, 384, *LENGTHS]
    assert progress == sorted(set(progress))
    assert progress[-1] == 1.0 and len(progress) == 3 + len(widths)
    assert backend.length(0) == 0


def test_a_pass_that_fails_empties_its_rows_and_the_next_works(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = load()
    backend.extend([Entry(0, 0, IDS[:5], 5), Entry(1, 0, IDS[:5], 5)])

    def fails(*_: Any, **__: Any) -> None:
        raise AssertionError("Copying tensor from host to device")

    with monkeypatch.context() as patch:
        patch.setattr(backend._model, "speculative_forward", fails)
        with pytest.raises(EngineFailure, match="transformers-neuronx failed: AssertionError: Copying tensor"):
            backend.extend([Entry(0, 5, IDS[5:7], 0)])
        patch.setattr(backend._model, "speculative_forward", lambda *_, **__: np.zeros((4, 264)))
        with pytest.raises(EngineFailure, match=r"gave logits of shape \(4, 264\), expected was \(4, 264, 1\)"):
            backend.extend([Entry(1, 5, IDS[5:7], 0)])
    assert [backend.length(row) for row in range(2)] == [0, 0]
    assert backend.extend([Entry(0, 0, IDS[:3], 0)])[0].shape == (3, 264)
