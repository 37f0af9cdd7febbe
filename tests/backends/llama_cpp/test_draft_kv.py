"""The KV cache of a draft model: small where memory is short, and precise where a small one picks other tokens."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from backends.llama_cpp import backend as engine
from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.library import lib
from backends.llama_cpp.load import load_draft
from backends.registry import load_draft as load_by_name
from models import DEFAULT_DRAFT
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import ModelLoadError, NoRoom
from specpair.engines.load_options import LoadOptions

on_cpus = pytest.mark.skipif(lib.llama_supports_gpu_offload(), reason="the cache may go to a GPU with its own memory")


def options(kv_type: str = "f16", context: int = 2048) -> LoadOptions:
    return LoadOptions(DEFAULT_DRAFT, 2, context, shared_cells=0, threads=1, kv_type=kv_type)


class Imprecise(LlamaBackend):
    """A model that picks other tokens with a KV cache in q8_0."""

    def __init__(self, options: LoadOptions, *others: Any, **named: Any) -> None:
        self.step = -1 if options.kv_type == "q8_0" else 1
        super().__init__(options, *others, **named)

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        return [rows[:, :: self.step] for rows in super().extend(batch)]


@pytest.fixture(scope="module")
def precise_bytes() -> int:
    with closing(load_draft(options())) as backend:
        return backend.kv_bytes


def short_of_memory(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(engine, "available_bytes", lambda: free)


def test_the_one_that_is_chosen_is_taken(precise_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    with closing(load_by_name("llama_cpp", options("q8_0"))) as backend:
        assert backend.kv_bytes == precise_bytes * 34 // 64
        assert backend.can_splice and [backend.length(slot) for slot in (0, 1)] == [0, 0]
    with closing(load_draft(options("f32"))) as backend:
        assert backend.kv_bytes == 2 * precise_bytes
    assert not caplog.records


@on_cpus
def test_q8_0_is_taken_where_f16_does_not_fit(
    precise_bytes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short_of_memory(monkeypatch, precise_bytes - 1)
    with closing(load_draft(options())) as backend:
        assert backend.kv_bytes < precise_bytes
    [record] = caplog.records
    assert record.getMessage().startswith("the KV cache of 2 slots of 2048 tokens takes 0.0 GiB")
    assert record.getMessage().endswith("q8_0 is tried, which takes half of that")
    with pytest.raises(NoRoom):
        load_draft(options("f32"))
    short_of_memory(monkeypatch, precise_bytes // 4)
    with pytest.raises(NoRoom):
        load_draft(options())


@on_cpus
def test_f16_is_taken_where_q8_0_picks_other_tokens(
    precise_bytes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(load_draft(options("q8_0"), made_by=Imprecise)) as backend:
        assert backend.kv_bytes == precise_bytes
    [record] = caplog.records
    assert record.getMessage().startswith("stdlib-draft-q8_0 picks ")
    assert record.getMessage().endswith(" of its usual tokens with a KV cache in q8_0: it gets one in f16")
    short_of_memory(monkeypatch, precise_bytes - 1)
    with pytest.raises(NoRoom):
        load_draft(options(), made_by=Imprecise)


def test_a_text_shorter_than_the_context_is_compared(caplog: pytest.LogCaptureFixture) -> None:
    for context in (8, 33, 200):
        with closing(load_draft(options("q8_0", context))) as backend:
            assert backend.context_length == context
    assert not caplog.records


def test_one_that_is_too_coarse_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"^kv_type: q4_0 is too coarse for a draft model: .* Choose f16 or q8_0$"):
        load_draft(options("q4_0"))
