"""A short soak is clean, and a soak notices what it is for: a wrong token, books that do not add up, what is left."""

import asyncio
import json

import pytest

from backends.scripted import ScriptedBackend
from benchmarks.soak import Outcome, Sample, soak
from benchmarks.soak_caller import Soak
from benchmarks.soak_drafters import Life
from benchmarks.soak_truth import Fault, Memory, Tally, Truth
from benchmarks.soak_verifier import Books, WholeContext
from speculation.sampling.sampling import Sampling
from verifier_server.service import Service
from verifier_server.settings import Settings

pytestmark = pytest.mark.slow

PROMPT = [1, 2, 3]


def test_a_short_soak_is_clean_and_leaves_nothing() -> None:
    outcome = soak(8.0, 24, seed=7, rows=6, ttl=2.0)
    tally, rest = outcome.tally, outcome.rest
    assert tally.faults == []
    assert rest is not None and rest.held["fault"] is None and rest.held["sessions"] == rest.held["rows"] == 0
    assert rest.held["checks"] > 50
    assert max(sample.held["rows"] for sample in outcome.samples) == 6
    for what in ("drafts_sent", "flights", "crashes", "stalls", "returns", "deleted in flight"):
        assert tally.happened[what], what


def test_a_soak_notices_another_text() -> None:
    faults = soak(5.0, 4, seed=7, ttl=1.0, model=2).tally.faults
    assert faults and all("it is [" in fault for fault in faults)


def test_the_model_depends_on_every_token_before() -> None:
    model, text = WholeContext(), list(range(100))
    said = model.logits_after(text)
    assert (model.logits_after(text) == said).all()
    for at in (0, 50, 99):
        other = [*text[:at], 200, *text[at + 1 :]]
        assert (model.logits_after(other) != said).any()
    assert (model.logits_after(text[1:]) != said).any()


def _truth(most: int | None = 8, **sampling: float) -> Truth:
    return Truth(WholeContext(), 64, PROMPT, Sampling(**sampling), most)  # type: ignore[arg-type]


def test_the_truth_is_what_the_model_says_alone() -> None:
    model, truth = WholeContext(), _truth()
    text = truth.between(0, 99)
    assert text[:3] == PROMPT and len(text) == 11
    assert text[3:] == [int(model.logits_after(text[:at]).argmax()) for at in range(3, 11)]
    assert [truth.ending(total) for total in (3, 10, 11)] == [None, None, "length"]


@pytest.mark.parametrize(
    ("position", "total", "reason", "wrong"),
    [(5, 7, None, True), (5, 8, None, False), (5, 7, "length", False), (6, 7, None, False)],
    ids=["a token", "the total", "the reason", "the place"],
)
def test_whatever_is_not_the_truth_is_a_fault(position: int, total: int, reason: str | None, wrong: bool) -> None:
    truth = _truth(temperature=1.0, seed=3)
    tokens = truth.between(5, 7)
    truth.compare(5, tokens, 7, None, "mine")
    if wrong:
        tokens[1] ^= 1
    with pytest.raises(Fault, match="mine"):
        truth.compare(position, tokens, total, reason, "mine")


def test_a_session_must_be_known_for_as_long_as_it_was_used_lately() -> None:
    memory = Memory(ttl=1000.0)
    assert not memory.lasts(memory.heard)
    memory.touched(1e9)  # a moment ahead of any clock's
    memory.touched(5.0)
    assert memory.lasts(memory.heard) and not memory.lasts(-1e9)
    memory.doomed = True
    assert not memory.lasts(memory.heard)


def test_what_a_drafter_chooses_is_the_seeds_choice() -> None:
    def life(seed: int, number: int) -> dict[str, object]:
        over = asyncio.Event()
        soaked = Soak(("127.0.0.1", 1), seed, 1.0, ScriptedBackend(), Tally(), over)
        return Life(soaked, 3, number)._prefill

    assert life(1, 5) == life(1, 5)
    assert life(1, 5) != life(1, 6) and life(1, 5) != life(2, 5)


def test_books_that_do_not_add_up_are_told_of() -> None:
    async def check() -> tuple[int, dict[str, object]]:
        service = Service(Settings(backend="scripted"), WholeContext())
        service.outbox.attach(asyncio.get_running_loop())
        service.start()
        try:
            books = Books(service)
            keeping = asyncio.create_task(books.keep())
            await asyncio.to_thread(service._loader.join)
            assert (await books.show()).status_code == 200
            service.engine._scheduler._rows._free.append(0)
            async with asyncio.timeout(20):
                await keeping
            shown = await books.show()
            return shown.status_code, json.loads(bytes(shown.body))
        finally:
            service.stop()

    status, shown = asyncio.run(check())
    assert status == 500 and "row 0 is both free and owned" in str(shown["fault"])


def test_growth_is_that_of_the_last_quarter_over_the_second() -> None:
    levels = [10.0, 40.0, 50.0, 51.0, 49.0, 60.0, 55.0, 53.0]
    outcome = Outcome(samples=[Sample(float(at), level, 0, {}, 0) for at, level in enumerate(levels)])
    assert outcome.growth == 54.0 - 50.5
