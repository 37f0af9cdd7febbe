"""Gemma 3: a target and drafter of 262,144 ids whose layers see 512 tokens only: rejected drafts are taken back on both
sides of the window's edge."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.llama_cpp.backend import LlamaBackend
from drafter_client import DraftModel, Mode, Options, Pair
from scripts import real_models
from specpair.child_processes import serving
from specpair.engines.backend import Entry
from specpair.engines.load_options import LoadOptions
from tests.real_models.conftest import SEED, written

pytestmark = pytest.mark.engine("real")

WINDOW, CONTEXT = 512, 1024
STORY = "The tide rose, and the keeper of the lighthouse counted the boats. " * 34  # 500 tokens


@pytest.fixture(scope="module")
def gemma(folder: Path) -> LoadOptions:
    model = folder / real_models.FOREIGN.name
    return LoadOptions(model=model, context_length=CONTEXT, threads=1, deterministic=True)


def test_logits_after_rejections_across_the_window_are_those_of_a_straight_run(gemma: LoadOptions) -> None:
    backend = LlamaBackend(gemma)
    try:
        assert backend.vocabulary.size == 262_144
        ids = backend.vocabulary.encode(STORY * 2)[: WINDOW + 40]
        straight, wrong = list[bytes](), [7] * 4
        backend.extend([Entry(0, 0, ids[: WINDOW - 20], WINDOW - 20)])
        for at in range(WINDOW - 20, len(ids)):
            straight.append(backend.extend([Entry(0, at, ids[at : at + 1], 0)])[0].tobytes())
        backend.release(0)
        backend.extend([Entry(0, 0, ids[: WINDOW - 20], WINDOW - 20)])
        for at in range(WINDOW - 20, len(ids)):
            backend.extend([Entry(0, at, [ids[at], *wrong], 0)])  # all of `wrong` are taken back
            again = backend.extend([Entry(0, at, ids[at : at + 1], 0)])[0].tobytes()
            assert again == straight[at - (WINDOW - 20)]
    finally:
        backend.close()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_gemma_drafts_for_itself_and_for_the_server(gemma: LoadOptions, temperature: float) -> None:
    options = Options(max_tokens=48, temperature=temperature, seed=SEED, draft_n=4)
    with (
        serving.verifier(
            model=gemma.model, context=CONTEXT, slots=2, threads=1, deterministic=True, draft_model=gemma.model
        ) as server,
        Pair(server.url, DraftModel(gemma.model or "", engine=LoadOptions(threads=1))) as pair,
    ):
        assert pair.target.vocabulary.size == 262_144
        texts = {}
        for mode in (Mode.TARGET, Mode.REMOTE, Mode.FUSED):
            generation = pair.generate(STORY, replace(options, mode=mode))
            texts[mode] = written(generation)
            accepted = generation.stats.accepted
            assert mode is Mode.TARGET or accepted > 0
        assert texts[Mode.REMOTE] == texts[Mode.TARGET] and texts[Mode.FUSED] == texts[Mode.TARGET]
