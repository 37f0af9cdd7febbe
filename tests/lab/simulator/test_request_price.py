"""What requests cost the processes of a verifier, in virtual time: queues, and how much they take."""

from dataclasses import asdict
from typing import Any

import pytest

from lab.simulator.fleet.record import Conversation, Record, Turn
from tests.lab.simulator.fleets import configured, link, run

FREE = {"request_ms": 0.0}
FAST = {"law": "linear", "decode_ms": 0.001}


def written(mode: str, http: dict[str, Any], texts: int = 1, until: float = float("inf")) -> list[Record]:
    """The records of texts that are begun at once. Passes and draft steps take next to nothing, drafts are wrong."""
    setting = configured(
        mode,
        [{"name": "a", "cost": FAST, "http": http, "slots": 64}],
        [{"name": "laptop", "cost": FAST, "agreement": 0.0}],
        connections=[link(0.0)],
        gamma=1,
    )
    records, _ = run(setting, (Conversation(f"c{each}", 0.0, (Turn(20, 400),)) for each in range(texts)), until)
    return records


def rate(records: list[Record]) -> float:
    """Requests a second of drafters that wait for each reply: each brings one token."""
    return sum(0.5 <= time < 2.0 for record in records for time in record.times) / 1.5


@pytest.mark.parametrize(
    ("http", "most"),
    [
        ({"request_ms": 6.0}, 1 / 6e-3),
        ({"request_ms": 3.0}, 1 / 3e-3),
        ({"workers": 1, "engine_ms": 2.0, "worker_ms": 8.0}, 1 / 8e-3),
        ({"workers": 3, "engine_ms": 2.0, "worker_ms": 8.0}, 3 / 8e-3),
        ({"workers": 16, "engine_ms": 2.0, "worker_ms": 8.0}, 1 / 2e-3),
    ],
)
def test_full_processes_take_as_many_requests_as_on_paper(http: dict[str, Any], most: float) -> None:
    """Workers divided by the price in a worker, up to one by the price in the engine's process."""
    assert 0.97 * most <= rate(written("lockstep", http, texts=48, until=2.0)) <= 1.03 * most


@pytest.mark.parametrize(
    ("http", "price"), [({"request_ms": 6.0}, 6e-3), ({"workers": 4, "engine_ms": 2.0, "worker_ms": 8.0}, 10e-3)]
)
def test_a_request_alone_takes_its_price(http: dict[str, Any], price: float) -> None:
    (free,), (priced,) = written("target", FREE), written("target", http)
    assert priced.ttft - free.ttft == pytest.approx(price)


def test_without_a_price_workers_change_nothing() -> None:
    nothing = {"workers": 4, "engine_ms": 0.0, "worker_ms": 0.0}
    free, same = ([asdict(each) for each in written("remote", http, texts=3)] for http in (FREE, nothing))
    assert free == same


def test_an_event_brings_all_tokens_that_were_committed_while_it_waited() -> None:
    """So a slow worker delays tokens of a stream, but their number a second stays."""
    slow = {"workers": 1, "engine_ms": 0.03, "worker_ms": 20.0}
    (record,) = written("remote", slow)
    arrivals = len({*record.times})
    assert arrivals < len(record.times) / 4
    assert record.end - record.first == pytest.approx(arrivals * 10e-3, rel=0.5)
