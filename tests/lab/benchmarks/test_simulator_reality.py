"""The comparison of the simulator with real fleets: its measures, its bars, its draft model, and a short real run."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.benchmarks.simulator_reality import real_fleet
from lab.benchmarks.simulator_reality.processes import AgreeingModel, Drafts
from lab.benchmarks.simulator_reality.simulated import (
    Measures,
    measured,
    records_of,
    stretched,
)
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.text import Agreeing, Choices, Text
from lab.simulator.virtual.agreement import stated
from specpair.speculation.sampling.sampling import Sampling

LINEAR = {"law": "linear", "decode_ms": 20, "per_token_ms": 0.5, "per_sequence_ms": 0.25}


def configuration(**keys: object) -> Configuration:
    """One drafter in lockstep at one verifier. `keys`: replace those of the file."""
    devices = {
        "verifiers": [{"name": "big", "cost": LINEAR, "slots": 4}],
        "drafters": [{"name": "laptop", "cost": LINEAR | {"decode_ms": 4}, "agreement": [0.9, 0.7]}],
    }
    workload = {"arrival": "closed", "users": 1, "prompt_tokens": 20, "output_tokens": 20, "pause_ms": 10}
    link = {"rtt_ms": 8, "jitter_ms": 0, "loss": 0}
    given = {"sim_time_ms": 4000, "mode": "lockstep", "gamma": 2, "devices": devices, "connections": [link]}
    return Configuration.model_validate(given | {"workload": workload} | keys)


def record(sent: float, *times: float) -> Record:
    return Record("c", 0, "", 10, len(times), sent, times=[*times])


# Measures and bars.


def test_what_users_see_is_measured_within_the_window_and_divided_by_the_factor() -> None:
    early, late = record(0.5, 0.9, 1.5, 1.5005, 1.9), record(1.0, 1.2, 1.8, 3.1)
    assert measured([early, late], 1.0, 3.0, 2.0) == Measures(
        throughput=5.0,  # five tokens in what stands for one second
        ttft_p50=pytest.approx(100.0),  # type: ignore[arg-type]  # of the late one: the other's came before
        ttft_p95=pytest.approx(100.0),  # type: ignore[arg-type]
        round_p50=pytest.approx(300.0),  # type: ignore[arg-type]  # 0.6, 0.4 and 0.6 s: two tokens came at once
        round_p95=pytest.approx(300.0),  # type: ignore[arg-type]
        texts=1,
        rounds=3,
    )


# What is simulated.


@pytest.mark.parametrize("mode", ["target", "lockstep"])  # a controller has thresholds in seconds, which stay
def test_a_stretched_configuration_has_the_same_texts_all_later(mode: str) -> None:
    plain, longer = (
        records_of(each, 1) for each in (configuration(mode=mode), stretched(configuration(mode=mode), 4.0))
    )
    whole = [each for each in plain if len(each.times) == each.output_tokens]
    assert len(whole) > 3
    for before, after in zip(whole, longer, strict=False):
        assert after.conversation == before.conversation and after.sent == pytest.approx(4.0 * before.sent)
        assert after.times == pytest.approx([4.0 * each for each in before.times])


@settings(max_examples=40)
@given(st.integers(0, 1000), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_the_real_draft_model_proposes_what_the_simulated_one_does(seed: int, grow: list[int]) -> None:
    law = stated(0.8, 0.6, 0.3)
    text = Text([1, 2, 3], lambda what: random.Random(f"{seed}/{what}"))
    model = AgreeingModel(4, 200, law)
    model.begin(text)
    real, there = Drafts(model, model, Sampling(temperature=0.0), 256), Agreeing(Choices(text, law))
    length = text.prompt_len
    for more in grow:
        length += more
        tail: list[int] = []
        for _ in range(4):
            found, expected = (each.expand(text.tokens(0, length), [tail], True) for each in (real, there))
            ours, theirs = found.proposals[0], expected.proposals[0]
            assert ours.token == theirs.token
            assert ours.runner_up == theirs.runner_up
            tail = [*tail, ours.token]


# The real runs.


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"connections": [{"rtt_ms": 8, "jitter_ms": 0, "loss": 0.1}]}, "without loss"),
    ],
)
def test_what_has_no_real_counterpart_is_refused(keys: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        real_fleet.run(configuration(**keys), 0)


@pytest.mark.slow
def test_a_real_fleet_writes_the_texts_of_the_simulation() -> None:
    given = configuration(sim_time_ms=2000, mode="remote", gamma="auto")
    real = real_fleet.run(given, 5)  # raises for a text that is not the target's
    asked = {each.conversation: each for each in records_of(given, 5)}
    first = min(real.records, key=lambda each: each.sent)
    there = asked[first.conversation]
    assert first.times and (first.prompt_tokens, first.output_tokens) == (there.prompt_tokens, there.output_tokens)
    assert real.late and real.lateness >= 1.0
