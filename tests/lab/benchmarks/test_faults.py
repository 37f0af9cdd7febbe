"""A few worlds and a short soak pass; and both notice wrong tokens, bookkeeping that is inconsistent, what is left."""

import asyncio
import json
import logging
import re

import pytest

from lab.benchmarks.faults import pairs, worlds
from lab.benchmarks.faults.checks import Held
from lab.benchmarks.faults.soak import SETTLED, Sample, Soak, soak
from lab.benchmarks.faults.soak_verifier import Books, WholeContext
from verifier_server.engine.slots import SlotPool
from verifier_server.service import Service
from verifier_server.sessions import Session
from verifier_server.settings import Settings


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # passes that fail are logged


@pytest.mark.parametrize("first", range(0, 120, 15))
def test_nothing_is_lost_or_changed_in_a_few_worlds(first: int) -> None:
    assert worlds.failed(range(first, first + 15)) == []


@pytest.mark.parametrize("seed", range(len(worlds.KINDS)))
def test_a_world_is_the_same_each_time(seed: int) -> None:
    assert worlds.world(seed) == worlds.world(seed)


@pytest.mark.parametrize("kind", range(len(worlds.KINDS)))
def test_a_world_in_which_a_text_goes_on_wrongly_is_named_with_the_command_that_repeats_it(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = Session.resume
    monkeypatch.setattr(Session, "resume", lambda self, tokens: resume(self, [*tokens[:-1], 7] if tokens else tokens))
    wrong = worlds.failed(range(kind, 120, len(worlds.KINDS)))
    assert wrong and all(f"({worlds.name(kind)})" in each for each in wrong)
    for each in wrong:
        [seed] = re.findall(r"^world (\d+) ", each)
        assert each.endswith(f"repeat: python -m lab.benchmarks.faults --world {seed}")


def test_a_world_that_never_ends_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MOST_EVENTS", 10)
    [wrong, *_] = worlds.failed(range(0, 40, len(worlds.KINDS)))
    assert "endless loop at" in wrong


@pytest.mark.slow
def test_a_short_soak_is_clean_and_leaves_nothing() -> None:
    soaked = soak(8.0, 24, seed=7, slots=6, ttl=2.0)
    rest = soaked.rest
    assert soaked.faults == []
    assert rest is not None and rest.held["fault"] is None and rest.held["sessions"] == rest.held["slots"] == 0
    assert rest.held["checks"] > 50
    assert max(sample.held["slots"] for sample in soaked.samples) == 6
    for what in ("drafts in flight", "streams", "crashes", "stalls", "returns", "deleted in flight"):
        assert soaked.happened[what], what


@pytest.mark.slow
def test_a_soak_notices_tokens_of_another_text() -> None:
    faults = soak(5.0, 4, seed=7, ttl=1.0, model=2).faults
    assert faults and all("it is [" in fault for fault in faults)


def _soak(seed: int = 0, **fields: list[Sample]) -> Soak:
    return Soak(("127.0.0.1", 1), seed, 1000.0, WholeContext(), **fields)  # type: ignore[arg-type]


def test_inconsistent_bookkeeping_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> tuple[int, dict[str, object]]:
        service = Service(Settings(backend="scripted"), WholeContext())
        service.engine_client.attach(asyncio.get_running_loop())
        service.loader.start()
        try:
            books = Books(service)
            keeping = asyncio.create_task(books.keep())
            await asyncio.to_thread(service.loader.wait)
            assert (await books.show()).status_code == 200
            monkeypatch.setattr(SlotPool, "check", lambda _: ["the slots [3, 2, 1, 0, 0] are free"])
            async with asyncio.timeout(20):
                await keeping
            shown = await books.show()
            return shown.status_code, json.loads(bytes(shown.body))
        finally:
            service.stop()

    status, shown = asyncio.run(check())
    assert status == 500 and "the slots [3, 2, 1, 0, 0] are free" in str(shown["fault"])


def test_growth_is_that_of_the_last_quarter_over_the_second_of_a_long_run() -> None:
    levels = [10.0, 40.0, 50.0, 51.0, 49.0, 60.0, 55.0, 53.0]
    for seconds, growth in ((SETTLED, 54.0 - 50.5), (1.0, None)):
        samples = [Sample(seconds * at, Held(0, 0, level), {}) for at, level in enumerate(levels)]
        assert _soak(samples=samples).growth == growth
