"""Drafters by table write the target's text, about as fast as the real controllers that the table was fitted to."""

from typing import Any

from backends.scripted import END
from lab.simulator.known_outputs.capacity import start_all, virtual_world
from lab.simulator.known_outputs.capacity_clients import CONTEXT, GREEDY, Setting, known_pass_times
from lab.simulator.known_outputs.capacity_model import Knowing, KnownOutput, Metrics, pass_time
from lab.simulator.paced.engine import DRAFTER_8, TARGET_25
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.table import Table
from lab.simulator.virtual.table_drafter import Recorded, TableDrafter, fit
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.text_options import TextSpec
from verifier_server.sessions import Session

CLIENTS, START, END_AT = 4, 1.0, 5.0  # seconds
LINK, LONG_LINK = Network(0.005), Network(0.03)


def _rate(crowd: list[Recorded] | list[TableDrafter]) -> float:
    return Metrics.of([each.course.times for each in crowd], START, END_AT).rate


def _fitted(network: Network, **options: Any) -> tuple[Table, float]:
    world, _ = virtual_world(Setting(TARGET_25, DRAFTER_8), CLIENTS)
    crowd = [
        Recorded(
            world,
            KnownOutput(number).prompt,
            GREEDY,
            Knowing(KnownOutput(number), 6),
            lambda branches: pass_time(DRAFTER_8, branches, 1),
            max_tokens=CONTEXT,
            network=network,
            pass_times=known_pass_times(TARGET_25),
            name=str(number),
            **options,
        )
        for number in range(CLIENTS)
    ]
    start_all(world, crowd)
    return fit(world, crowd, START, END_AT - START), _rate(crowd)


def _by_table(table: Table, network: Network, self_continue: bool = True, **options: Any) -> list[TableDrafter]:
    world, _ = virtual_world(Setting(TARGET_25, DRAFTER_8), CLIENTS, **options)
    crowd = []
    for number in range(CLIENTS):
        text = KnownOutput(number)
        session = Session(str(number), list(text.prompt), len(text.prompt), TextSpec.of(GREEDY), CONTEXT, {END})
        seed = f"drafter/{number}"
        crowd.append(TableDrafter(world, session, text.draft, table, network, seed=seed, self_continue=self_continue))
    start_all(world, crowd)
    world.run(until=END_AT)
    for number, each in enumerate(crowd):
        tokens = each.session.tokens
        assert tokens == KnownOutput(number).tokens(0, len(tokens))
    return crowd


def test_drafters_by_table_are_about_as_fast_as_those_that_it_was_fitted_to() -> None:
    for network in (LINK, LONG_LINK):
        table, rate = _fitted(network)
        crowd = _by_table(table, network)
        assert abs(_rate(crowd) / rate - 1.0) < 0.08
    assert [each.course.times for each in crowd] == [each.course.times for each in _by_table(table, network)]


def test_drafters_by_table_in_lockstep_leave_no_step_to_the_verifier() -> None:
    table, rate = _fitted(LONG_LINK, mechanisms=LOCKSTEP, length=4)
    crowd = _by_table(table, LONG_LINK, self_continue=False)
    assert abs(_rate(crowd) / rate - 1.0) < 0.03
    assert all(len({*each.course.times}) <= each.course.drafts_sent + 1 for each in crowd)  # tokens come as answers


def test_an_empty_table_leaves_the_text_to_the_verifier() -> None:
    crowd = _by_table(Table(), Network(0.02, jitter=0.005, loss=0.2))
    assert all(each.course.times and not each.course.judged for each in crowd)
    assert all(each.course.times == sorted(each.course.times) for each in crowd)


def test_a_request_that_is_sent_away_comes_again() -> None:
    crowd = _by_table(Table(), LINK, max_queue=1)
    assert max(each.course.opened for each in crowd) > 1.0 and all(each.course.times for each in crowd)
