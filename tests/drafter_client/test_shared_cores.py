"""A drafter notices that its draft model and the verifier's passes need the same cores of one machine."""

import pytest

from backends.machine import cores_to_use, machine_id
from backends.scripted import ByteVocabulary
from drafter_client.draft_sources import Drafting
from tests.drafter_client.http.bodies import model_info

CORES = cores_to_use()


@pytest.mark.parametrize(
    ("machine", "passes", "steps", "shared"),
    [
        (machine_id(), CORES, CORES, True),
        (machine_id(), CORES, 1, True),
        ("another", CORES, CORES, False),  # an address of this machine may lead to another one, through a tunnel
        (None, CORES, CORES, False),  # a verifier that does not say
        (machine_id(), 0, CORES, False),  # the verifier's passes run on a GPU
        (machine_id(), CORES, 0, False),  # the draft model runs on one, or nothing is computed
    ],
)
def test_cores_are_shared_on_one_machine_with_fewer_than_both_ends_use(
    machine: str | None, passes: int, steps: int, shared: bool
) -> None:
    info = model_info(machine=machine, threads=passes)
    assert (
        Drafting(
            "draft", info, ByteVocabulary(), [], lambda *_: pytest.fail("nothing has changed"), threads=steps
        ).shares_cores
        is shared
    )


def test_cores_that_suffice_for_both_ends_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter_client.draft_sources.cores_to_use", lambda: 8)
    info = model_info(machine=machine_id(), threads=6)
    assert not Drafting(
        "draft", info, ByteVocabulary(), [], lambda *_: pytest.fail("nothing has changed"), threads=2
    ).shares_cores
