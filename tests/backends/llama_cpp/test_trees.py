"""Trees on llama.cpp beyond the conformance tests: how many leaves, which models, and a pass without room."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from backends.llama_cpp.batch import leaves_of
from backends.registry import load
from models import DEFAULT_DRAFT
from specpair.engines.backend import Entry
from specpair.engines.errors import BadEntry, OutOfRoom
from specpair.engines.load_options import MOST_SLOTS, LoadOptions
from tests.stand_ins.tiny_architectures import write_tiny_architecture

TEXT = [5 + 7 * at % 190 for at in range(40)]


@pytest.mark.parametrize("slots", [1, 4, 16, 40, 64, 65, MOST_SLOTS])
def test_a_slot_has_fewer_leaves_where_there_are_many_slots(slots: int) -> None:
    leaves = leaves_of(slots, 512)
    assert 1 <= leaves <= 8 and (leaves == 1 or leaves * slots <= 128)
    assert leaves_of(slots, slots) == 1, "a pass has room for a token of each sequence"


@pytest.mark.parametrize("context", [2, 3, 7])
def test_a_small_cache_has_few_leaves(context: int) -> None:
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 1, context, threads=1))) as backend:
        assert backend.max_leaves == context + 1
        backend.extend([Entry(0, 0, TEXT[:context], 0, list(range(1, context)))])


@pytest.mark.parametrize("slots", [2, MOST_SLOTS])
def test_the_most_leaves_share_a_pass(slots: int) -> None:
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, slots, 16, threads=1))) as backend:
        assert backend.takes_trees is (slots == 2)
        if backend.max_leaves and backend.takes_trees:
            siblings = list(range(1, backend.max_leaves + 1))
            tokens = TEXT[: len(siblings) + 1]
            tree = backend.extend([Entry(slot, 0, tokens, 1, siblings) for slot in range(slots)])[1].copy()
            backend.keep(1, [len(siblings)])
            backend.release(0)
            chain = backend.extend([Entry(0, 0, [tokens[0], tokens[-1]], 1)])[0]
            assert np.abs(tree[-1] - chain[0]).max() < 0.25


def test_models_and_settings_without_one_shared_cache_take_none(tmp_path: Path) -> None:
    write_tiny_architecture("mamba2", tmp_path / "mamba2.gguf")
    for options in (
        LoadOptions(DEFAULT_DRAFT, 2, 64, threads=1, deterministic=True),
        LoadOptions(tmp_path / "mamba2.gguf", 2, 64, threads=1, kv_type="f32", flash_attention=False),
    ):
        with closing(load("llama_cpp", options)) as backend:
            assert not backend.takes_trees
            with pytest.raises(BadEntry, match="llama_cpp takes no trees"):
                backend.extend([Entry(0, 0, TEXT[:3], 0, [1, 2])])


def test_the_first_path_has_the_bits_of_a_chain() -> None:
    """Its cells are in the order of its positions, and those of the rest behind them, which later tokens take over."""
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 1, 64, threads=1))) as backend:
        assert backend.even_width
        plain = [backend.extend([Entry(0, at, [token], 0)])[0][0].copy() for at, token in enumerate(TEXT)]
        backend.release(0)
        backend.extend([Entry(0, 0, TEXT[:4], 0)])
        for at in range(4, len(TEXT) - 4, 3):
            tokens = [*TEXT[at : at + 4], *TEXT[:3]]
            rows = backend.extend([Entry(0, at, tokens, 0, [1, 1, 1, 4, 4, 4])])[0]
            assert np.array_equal(rows[:4], plain[at : at + 4])
            backend.keep(0, [1, 2])


def test_a_tree_for_which_there_is_no_room_leaves_the_other_slots_as_they_are() -> None:
    """Also the tree of another one, of which no path is kept yet."""
    options = LoadOptions(DEFAULT_DRAFT, 3, 250, threads=1, contexts=1, shared_cells=0, batch_tokens=256)
    with closing(load("llama_cpp", options)) as backend:
        backend.extend([Entry(0, 0, TEXT[:12], 9, [1, 2, 2, 2])])
        held = (TEXT * 6)[:225]
        backend.extend([Entry(1, 0, held, 225)])
        wide = [1, 2, 3, 4, 5, *[5] * 30]
        for _ in range(2):
            with pytest.raises(OutOfRoom):
                backend.extend([Entry(2, 0, TEXT[:36], 0, wide)])
        assert [backend.length(slot) for slot in range(3)] == [8, 225, 0]
        backend.keep(0, [9, 11])
        later = backend.extend([Entry(0, 10, TEXT[:2], 0)])[0].copy()
        backend.release(1)
        expected = backend.extend([Entry(1, 0, [*TEXT[:8], TEXT[9], TEXT[11], *TEXT[:2]], 10)])[0]
        assert np.abs(later - expected).max() < 0.25
