"""Recurrent and hybrid models: after any accepts and rejects, logits are those of a straight run."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from backends.recurrent import JOINED
from backends.registry import load
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.kept_texts import pays_to_cut
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.tiny_architectures import RECURRENT, write_tiny_architecture
from tests.stand_ins.tiny_folders import write_tiny_folder

CONTEXT, BATCH = 256, 32
CLOSE = 2e-3  # on logits with a spread of 5; 1e-3 was measured for a gated delta net on torch, 3e-5 for the others
Load = Callable[[int | None], Backend]
WAYS = [
    *(("llama_cpp", name) for name in RECURRENT),
    *(("torch", name) for name in ("mamba2", "lfm2", "qwen3_5_text")),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(way, id=" ".join(way), marks=pytest.mark.engine("torch") if way[0] == "torch" else ())
        for way in WAYS
    ],
)
def loading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Load:
    engine, family = request.param
    path = tmp_path_factory.mktemp("models") / family
    (write_tiny_folder if engine == "torch" else write_tiny_architecture)(family, path)
    return partial(_load, engine, path)


def _load(engine: str, path: Path, slots: int | None) -> Backend:
    options = LoadOptions(path, slots, CONTEXT, batch_tokens=BATCH, threads=1)
    if engine == "llama_cpp":
        return load(engine, replace(options, kv_type="f32", flash_attention=False))
    return load(engine, replace(options, device="cpu"))


@pytest.fixture
def three(loading: Load) -> Iterator[Backend]:
    with closing(loading(3)) as backend:
        yield backend


def feed(backend: Backend, slot: int, start: int, tokens: list[int]) -> Logits:
    return backend.extend([Entry(slot, start, tokens, 0)])[0].copy()


def straight(backend: Backend, slot: int, tokens: list[int]) -> Logits:
    """The last row of logits behind `tokens`, read from the first on."""
    backend.release(slot)
    return [feed(backend, slot, at, tokens[at : at + BATCH]) for at in range(0, len(tokens), BATCH)][-1][-1]


def some(chance: Random, count: int) -> list[int]:
    return [chance.randrange(5, 250) for _ in range(count)]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk_of_accepts_and_rejects_equals_a_straight_run(loading: Load, slots: int, seed: int) -> None:
    """Drafts of up to 12 tokens in one pass, as a verifier reads them, or in passes of one, as a draft model writes."""
    chance = Random(seed)
    with closing(loading(slots)) as backend, closing(loading(2)) as other:
        texts = [some(chance, chance.randrange(1, 60)) for _ in range(slots)]
        for slot, text in enumerate(texts):
            straight(backend, slot, text)
        for _ in range(40):
            slot = chance.randrange(slots)
            text, draft = texts[slot], some(chance, chance.randrange(1, 13))
            if len(text) + len(draft) > CONTEXT:
                break
            start, rows = len(text), []
            width = chance.choice([1, len(draft)])
            for at in range(0, len(draft), width):
                rows += [*feed(backend, slot, start + at, draft[at : at + width])]
            accepted = chance.choice([0, 1, len(draft) // 2, len(draft)])
            text += draft[:accepted]
            if accepted:
                assert np.abs(rows[accepted - 1] - straight(other, 0, text)).max() < CLOSE


def test_what_is_read_again_is_told_and_does_not_grow(three: Backend) -> None:
    chance = Random(4)
    text = some(chance, 30)
    feed(three, 0, 0, text)
    assert three.reread(0, 30) == 0
    for _ in range(30):  # one of five tokens is accepted each time
        feed(three, 0, len(text), some(chance, 5))
        text.append(5)
        three.extend([Entry(0, len(text) - 1, [5], 1)])
        assert three.reread(0, len(text) - 1) <= JOINED


def test_a_prompt_is_reused_near_a_point_only(three: Backend) -> None:
    chance = Random(5)
    text = some(chance, 4 * BATCH)
    for at in range(0, len(text), BATCH):
        feed(three, 0, at, text[at : at + BATCH])
    assert three.reread(0, 3 * BATCH) == 0 and pays_to_cut(three, 0, 3 * BATCH)
    assert three.reread(0, 10) == 10 and not pays_to_cut(three, 0, 10)
    three.copy(0, 1, 3 * BATCH + 5)
    assert three.reread(1, 3 * BATCH + 5) == 5
    assert np.abs(feed(three, 1, 3 * BATCH + 5, [9])[0] - straight(three, 2, [*text[: 3 * BATCH + 5], 9])).max() < CLOSE


def test_a_slot_with_nan_is_cleared_and_the_others_stay(three: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(7)
    kept, spoilt = some(chance, 20), some(chance, 20)
    feed(three, 0, 0, kept)
    with monkeypatch.context() as patch:
        patch.setattr("specpair.engines.backend.overflowed", lambda _rows: True)
        feed(three, 1, 0, spoilt)
    three.release(1)
    assert three.length(1) == 0 and three.reread(1, 0) == 0
    assert np.abs(feed(three, 1, 0, spoilt)[-1] - straight(three, 2, spoilt)).max() < CLOSE
    assert np.abs(feed(three, 0, 12, [9])[0] - straight(three, 2, [*kept[:12], 9])).max() < CLOSE
