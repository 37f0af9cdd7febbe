"""Server-side drafting for several texts in virtual time: it gains where the models agree, else hardly loses."""

import pytest

from lab.benchmarks.rounds import MACHINES, Server


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("agreement", "texts", "least"), [(0.8, 1, 1.2), (0.8, 4, 1.2), (0.2, 4, 0.97)])
def test_rounds_against_the_target_alone(machine: str, agreement: float, texts: int, least: float) -> None:
    alone = Server(MACHINES[machine], texts, 4 * texts, 64).alone()
    assert Server(MACHINES[machine], texts, 4 * texts, 64).drafting(agreement) >= least * alone
