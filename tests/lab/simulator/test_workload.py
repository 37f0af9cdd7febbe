"""Workloads: rates, order, the same seed the same conversations, streams that do not move each other, traces."""

import random
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from pydantic import TypeAdapter

from lab.request_traces import BadTrace
from lab.simulator.configuration.keys import FOLDER, Number
from lab.simulator.configuration.workload import WorkloadKeys
from lab.simulator.fleet.record import Conversation, Turn
from tests.paths import ROOT

MANY = 20_000
POISSON = {"arrival": "poisson", "rate_rps": 1.0, "prompt_tokens": 9, "output_tokens": 5}
DISTRIBUTIONS: list[tuple[Any, float, float]] = [
    (7, 7.0, 0.0),
    ({"distribution": "uniform", "min": 2, "max": 8}, 5.0, 6 / 12**0.5),
    ({"distribution": "exponential", "mean": 5}, 5.0, 5.0),
    ({"distribution": "lognormal", "mean": 500, "cv": 0.8}, 500.0, 400.0),
    ({"distribution": "empirical", "values": [1, 1, 4]}, 2.0, 2**0.5),
]


def number(given: Any) -> Any:
    return TypeAdapter(Number).validate_python(given)


def coming(keys: dict[str, Any], folder: Path = ROOT, seed: str = "a") -> Iterator[Conversation]:
    workload = TypeAdapter(WorkloadKeys).validate_python(keys, context={FOLDER: folder})
    found: Iterator[Conversation] = workload.conversations(random.Random(seed))
    return found


@pytest.mark.parametrize(("given", "mean", "deviation"), DISTRIBUTIONS)
def test_numbers_have_their_mean_and_deviation(given: Any, mean: float, deviation: float) -> None:
    rng, made = random.Random("a"), number(given)
    drawn = [made.draw(rng) for _ in range(MANY)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.05) and pstdev(drawn) == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize(
    "keys", [{"arrival": "poisson"}, {"arrival": "gamma", "cv": 0.5}, {"arrival": "gamma", "cv": 3.0}]
)
def test_arrivals_have_their_rate_and_their_variation_and_come_in_order(keys: dict[str, Any]) -> None:
    found = [*islice(coming(POISSON | keys | {"rate_rps": 4.0}), MANY)]
    assert MANY / found[-1].start == pytest.approx(4.0, rel=0.1)
    gaps = [later.start - each.start for each, later in pairwise(found)]
    assert min(gaps) >= 0 and pstdev(gaps) / fmean(gaps) == pytest.approx(keys.get("cv", 1.0), rel=0.05)
    assert len({each.name for each in found}) == MANY
    assert found[:50] == [*islice(coming(POISSON | keys | {"rate_rps": 4.0}), 50)]


def test_tenants_have_their_shares_prefixes_and_turns() -> None:
    chat = {"name": "chat", "share": 3.0, "turns": 2, "think_ms": 30_000, "shared_prefix_tokens": 100}
    found = [*islice(coming(POISSON | {"tenants": [chat, {"name": "code", "prompt_tokens": 40}]}), 4000)]
    of_chat = [each for each in found if each.tenant == "chat"]
    assert len(of_chat) / 4000 == pytest.approx(0.75, rel=0.05)
    assert {(each.prefix, each.turns) for each in of_chat} == {(100, (Turn(109, 5), Turn(9, 5, 30.0)))}
    assert {each.turns for each in found if each.tenant == "code"} == {(Turn(40, 5),)}


def test_what_changes_for_one_tenant_leaves_arrivals_and_the_texts_of_others_alone() -> None:
    """Common random numbers: two fleets, or two settings of a workload, meet the same chance."""
    several = {"distribution": "uniform", "min": 1, "max": 100}
    keys = POISSON | {"prompt_tokens": several, "tenants": [{"name": "other"}, {"name": "one"}]}
    changed = keys | {"tenants": [{"name": "other"}, {"name": "one", "turns": 4, "shared_prefix_tokens": 7}]}
    before, after = ([*islice(coming(each), 200)] for each in (keys, changed))
    assert [each.start for each in before] == [each.start for each in after]
    assert [each for each in before if each.tenant == "other"] == [each for each in after if each.tenant == "other"]
    assert before != after


def test_users_of_a_closed_loop_begin_within_the_ramp_and_pause_before_each_conversation() -> None:
    keys = POISSON | {"arrival": "closed", "users": 4, "ramp_ms": 10_000, "pause_ms": 250, "turns": 2, "think_ms": 5000}
    del keys["rate_rps"]
    found = [*islice(coming(keys), 6)]
    assert [each.start for each in found] == [0.0, 2.5, 5.0, 7.5, 0.0, 0.0], "a later one begins as another ends"
    assert {tuple(turn.think for turn in each.turns) for each in found} == {(0.25, 5.0)}


# Traces.


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A folder with 20 requests of a made-up service in the form of Azure's traces, two seconds apart."""
    rows = [f"2024-02-29 23:59:{10 + 2 * n:02}.2500000,{100 + n},{n % 7}" for n in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return tmp_path


def test_requests_of_a_trace_come_at_their_times_faster_and_again(trace: Path) -> None:
    keys = {"arrival": "trace", "trace_path": "t.csv"}
    found = [*coming(keys, trace)]
    assert [each.start for each in found] == pytest.approx([2.0 * n for n in range(20)])
    assert [each.turns for each in found] == [(Turn(100 + n, max(1, n % 7)),) for n in range(20)]
    again = [*islice(coming(keys | {"speed": 2.0, "repeat": True}, trace), 50)]
    assert [each.start for each in again] == pytest.approx([1.0 * n for n in range(50)])
    assert len({each.name for each in again}) == 50 and again[20].turns == found[0].turns


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadTrace, match=r"t\.csv is not UTF-8 text"):
        next(coming({"arrival": "trace", "trace_path": "t.csv"}, tmp_path))
