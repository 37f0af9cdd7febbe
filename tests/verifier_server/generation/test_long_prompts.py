"""Fused texts with prompts of which the draft model reads parts: they are the target's, and each keeps its pieces."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.base import read_prompt
from specpair.drafters.composed_drafter import ComposedDrafter
from specpair.engines.backend import Entry, Logits
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import LENGTH, body_of, leave_behind, slots_free, until
from verifier_server.generation.draft_model import PASS_TOKENS, SharedDraftModel

TEXTS, LONG = 3, 2200  # a prompt of so many tokens does not fit into the draft model's context
READ = SIZES.sink + SIZES.window + 2 * SIZES.piece  # of a prompt, before the answer begins
SLOW = replace(SCRIPT, seconds_per_pass=0.005)  # so that drafts pay
BY = pytest.mark.parametrize("draft_n", [3, None], ids=["alone", "in rounds"])


def prompt_of(number: int) -> list[int]:
    return [256, *(1 + (at * at * (number + 3) + at // 7) % 251 for at in range(LONG - 1))]


class Pieces(ScriptedBackend):
    """A draft model. `all_read` is set when `TEXTS` slots hold a piece; `wide` is the most tokens fed to a slot."""

    def __init__(self, *, slots: int = 2 * TEXTS) -> None:
        self.all_read, self.wide = threading.Event(), 0
        self.pieced: set[int] = set()
        super().__init__(
            Script(seed=SCRIPT.seed, agreement=0.6), slots=slots, context_length=2560, max_batch_tokens=512
        )

    def _splice(self, slot: int, start: int, end: int, source: int | None, first: int) -> None:
        super()._splice(slot, start, end, source, first)
        if source is not None:
            self.pieced.add(slot)
        if len(self.pieced) == TEXTS:
            self.all_read.set()

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.wide = max(self.wide, *(len(entry.tokens) for entry in batch))
        return super()._forward(batch)


class Waiting(ScriptedBackend):
    """A target whose passes end after `draft`, once it is set, has read pieces for all texts."""

    draft: Pieces | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        assert self.draft is None or self.draft.all_read.wait(20)
        return super()._forward(batch)


@BY
def test_texts_at_once_are_the_target_s_and_each_has_its_pieces(serve: Serve, draft_n: int | None) -> None:
    draft, target = Pieces(), Waiting(SLOW, slots=TEXTS, context_length=8192)
    live = serve(target, draft=draft)
    target.draft = draft
    prompts = [prompt_of(number) for number in range(TEXTS)]

    def write(number: int, prompt: list[int]) -> tuple[list[int], dict[str, int]]:
        sampling = Sampling(number, 0.8 * (number % 2))
        reply = live.post("/generate", body_of(sampling, prompt, draft_n=draft_n, cache_salt=f"{number}"))
        assert reply["token_ids"] == plain(SCRIPT, prompt, LENGTH, sampling)
        return reply["token_ids"], reply["speculation"]["draft_context"]

    with ThreadPoolExecutor(TEXTS) as threads:
        first = list(threads.map(write, range(TEXTS), prompts))
        for _, context in first:
            assert (context["sink"], context["pieces"] > 0, context["of"] >= LONG) == (SIZES.sink, True, True)
            assert sum(context[part] for part in ("sink", "pieces", "window")) <= SIZES.most
        assert draft.wide <= PASS_TOKENS
        fed = draft.fed
        turns = [[*prompt, *text, 7, 8, 9] for prompt, (text, _) in zip(prompts, first, strict=True)]
        for _, context in threads.map(write, range(TEXTS), turns):
            assert context["pieces"] > 0
        assert draft.fed - fed < TEXTS * READ, "the next turns read what is new"
    until(lambda: slots_free(live))
    live.service.engine.check_integrity()


def test_a_warm_text_in_rounds_is_not_read_again(serve: Serve) -> None:
    draft = ScriptedBackend(SCRIPT, slots=1)  # with another one, a text might begin before the last has left its slot
    live = serve(ScriptedBackend(SCRIPT), draft=draft)
    prompt = prompt_of(0)[:600]
    text = live.post("/generate", body_of(Sampling(1), prompt, cache_salt="chat"))["token_ids"]
    fed = draft.fed
    live.post("/generate", body_of(Sampling(1), [*prompt, *text, 1], cache_salt="chat"))
    assert draft.fed - fed < 600


class Held(Pieces):
    """A draft model whose first pass over a piece waits for `go_on`."""

    def __init__(self) -> None:
        self.reading, self.go_on = threading.Event(), threading.Event()
        super().__init__()

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if any(entry.start == SIZES.sink for entry in batch):
            self.reading.set()
            assert self.go_on.wait(20)
        return super()._forward(batch)


@BY
def test_a_text_that_is_cancelled_while_a_piece_is_read_reads_no_more(serve: Serve, draft_n: int | None) -> None:
    draft, target = Held(), Waiting(SCRIPT, slots=TEXTS, context_length=8192)
    live = serve(target, draft=draft)
    target.draft, prompt = draft, prompt_of(0)
    fed, body = draft.fed, body_of(Sampling(1), prompt, draft_n=draft_n)
    leave_behind(live, "/generate", body, draft.reading.is_set)
    until(lambda: live.service.texts.under_way == 0)
    draft.go_on.set()
    draft.all_read.set()
    until(lambda: slots_free(live))
    assert draft.fed - fed == SIZES.sink + SIZES.window + SIZES.chunk
    assert live.post("/generate", body)["token_ids"] == plain(SCRIPT, prompt, LENGTH, Sampling(1))
    live.service.engine.check_integrity()


def shared(draft: Pieces, most_kept: int | None = None) -> SharedDraftModel:
    return SharedDraftModel(draft, TEXTS, ScriptedBackend(SCRIPT), lambda: 0.0, most_kept)


def read(model: SharedDraftModel, prompt: Sequence[int]) -> int:
    with model.drafter(TextSpec(), prompt, "a") as drafter:
        assert isinstance(drafter, ComposedDrafter)
        return read_prompt(drafter, prompt, drafter.begun, lambda: False, lambda: False)


def test_a_composed_text_is_kept_until_there_is_no_room_for_it() -> None:
    draft = Pieces()
    model = shared(draft, most_kept=2 * READ + 10)
    texts = [prompt_of(number) for number in range(TEXTS)]
    assert [read(model, each) for each in texts[:2]] == [READ] * 2
    assert read(model, [*texts[1], 5]) == 1, "with the pieces that it has"
    read(model, texts[2])
    assert [read(model, [*texts[2], 5]), read(model, [*texts[0], 5])] == [1, READ]
    assert sum(map(bool, draft.held)) == 2


def test_an_engine_without_a_spare_slot_for_each_text_slides() -> None:
    model = shared(Pieces(slots=2 * TEXTS - 1))
    with model.drafter(TextSpec(), prompt_of(0)) as drafter:
        assert not isinstance(drafter, ComposedDrafter)
