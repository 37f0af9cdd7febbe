"""Drafters by table write the target's text, about as fast as the real controllers that the table was fitted to."""

from typing import Any

import pytest

from backends.scripted import END
from simulator.known_outputs.capacity import start_all, virtual_world
from simulator.known_outputs.capacity_clients import CONTEXT, GREEDY, Setting, known_pass_times
from simulator.known_outputs.capacity_model import Knowing, KnownOutput, Metrics, pass_time
from simulator.paced.engine import DRAFTER_8, TARGET_25
from simulator.virtual.table_drafter import Recorded, Table, TableDrafter, disagreement, fit
from simulator.virtual.world import Network
from specpair.speculation.text_options import TextSpec
from verifier_server.sessions import Session

SETTING, NETWORK = Setting(TARGET_25, DRAFTER_8), Network(0.005)
CLIENTS, START, END_AT = 4, 1.0, 5.0  # seconds


def _metrics(crowd: list[Recorded] | list[TableDrafter]) -> Metrics:
    return Metrics.of([each.course.times for each in crowd], START, END_AT)


def _fitted() -> tuple[Table, Metrics]:
    world, _ = virtual_world(SETTING, CLIENTS)
    crowd = [
        Recorded(
            world,
            KnownOutput(number).prompt,
            GREEDY,
            Knowing(KnownOutput(number), 6),
            lambda branches: pass_time(DRAFTER_8, branches, 1),
            max_tokens=CONTEXT,
            network=NETWORK,
            pass_times=known_pass_times(TARGET_25),
            name=str(number),
        )
        for number in range(CLIENTS)
    ]
    start_all(world, crowd)
    return fit(world, crowd, START, END_AT - START), _metrics(crowd)


def _by_table(table: Table, network: Network = NETWORK, **options: Any) -> list[TableDrafter]:
    world, _ = virtual_world(SETTING, CLIENTS, **options)
    crowd = []
    for number in range(CLIENTS):
        text = KnownOutput(number)
        session = Session(str(number), list(text.prompt), len(text.prompt), TextSpec.of(GREEDY), CONTEXT, {END})
        crowd.append(TableDrafter(world, session, text.draft, table, network, seed=f"drafter/{number}"))
    start_all(world, crowd)
    world.run(until=END_AT)
    for number, each in enumerate(crowd):
        tokens = each.session.tokens
        assert tokens == KnownOutput(number).tokens(0, len(tokens))
    return crowd


def test_drafters_by_table_are_about_as_fast_as_those_that_it_was_fitted_to() -> None:
    table, real = _fitted()
    crowd = _by_table(table)
    assert abs(disagreement(real, _metrics(crowd)).throughput) < 0.15
    assert [each.course.times for each in crowd] == [each.course.times for each in _by_table(table)]


def test_an_empty_table_leaves_the_text_to_the_verifier() -> None:
    crowd = _by_table(Table(), Network(0.02, loss=0.2))
    assert all(each.course.times and not each.course.judged for each in crowd)


def test_a_request_that_is_sent_away_comes_again() -> None:
    crowd = _by_table(Table(), max_queue=1)
    assert max(each.course.opened for each in crowd) > 1.0 and all(each.course.times for each in crowd)


def test_the_same_figures_do_not_disagree() -> None:
    same = Metrics(1, 50.0, 0.01, 0.02, 0.02, 0.03)
    assert disagreement(same, same) == pytest.approx((0.0, 0.0, 0.0))
